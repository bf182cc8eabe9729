# dfx-edge. `make help` lists the targets; `make info` says what was found and what was left out.
#
# Objects go to build/<variant>/: `release` is what gets installed, `san` carries ASan and UBSan and runs the tests, `fuzz` is
# the same by clang, with libFuzzer's counters.
# `poison` is a release whose products on a GPU are filled with NaNs before they are made, for compute-sanitizer's initcheck.
# An object is rebuilt when a file it includes changes (-MMD) or when its flags do (build/<variant>/flags).

VERSION := 0.1.0
PREFIX  ?= /usr/local
DESTDIR ?=
VARIANT ?= release
B       := build/$(VARIANT)
ifeq ($(origin CC),default)
CC      := gcc
endif

# ---- Flags. The release runs on every processor of its architecture: no -march here, the source clones its hot loops.

# OpenBLAS is not among the linked libraries: kernels/cpu/cpu_blas.c loads it when a backend opens.
PKGS    := jansson libpng libjpeg libutf8proc libxxhash liblz4 liburing
CSTD    := -std=gnu11
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wno-unused-parameter
OPT_release := -O3 -g -fno-math-errno -fno-trapping-math
# gcc itself says that its warning of variables that may be uninitialized is often wrong under sanitizers.
OPT_san := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined \
           -Wno-maybe-uninitialized -DDFX_SANITIZED=1
OPT_fuzz := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined \
            -Wno-unknown-attributes -Wno-unknown-pragmas -DDFX_SANITIZED=1
OPT_poison := $(OPT_release) -DDFX_POISON
ifeq ($(OPT_$(VARIANT)),)
$(error there is no variant "$(VARIANT)"; there are release, san, fuzz and poison)
endif

# mimalloc of Debian 12 and Ubuntu has no .pc file; its early packages put the header one folder deeper.
MIMALLOC_CFLAGS := $(addprefix -I,$(wildcard /usr/include/mimalloc-[0-9]*))
MIMALLOC_LIBS   := -lmimalloc

CFLAGS_ALL := $(CSTD) $(WARN) $(OPT_$(VARIANT)) -ffp-contract=off -fno-strict-aliasing -pthread -I. -D_GNU_SOURCE \
              -DDFX_VERSION='"$(VERSION)"' $(shell pkg-config --cflags $(PKGS) 2>/dev/null) $(MIMALLOC_CFLAGS)
LDLIBS_ALL := $(shell pkg-config --libs $(PKGS) 2>/dev/null) $(MIMALLOC_LIBS) -ldl -lm -pthread
LDFLAGS_ALL := $(filter -fsanitize%,$(OPT_$(VARIANT)))
TEST_LIBS  := -lcmocka

# The installed program looks for the bundled model here. Only the objects of tools/ know it.
DATADIR := $(abspath $(PREFIX))/share/dfx-edge

# ---- Files

LIB_SRC := $(wildcard core/*.c quant/*.c kernels/*.c kernels/cpu/*.c offload/*.c models/*.c)
CLI_SRC := $(wildcard tools/*.c)
TEST_SRC := $(wildcard tests/test_*.c)
CUDA_CHECK_SRC := $(wildcard tests/cuda_*.c)
TEST_HELP_SRC := $(filter-out $(TEST_SRC) $(CUDA_CHECK_SRC),$(wildcard tests/*.c))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)

# ---- CUDA: built along where there is nvcc (`make NVCC=` leaves it out) and the header of cuBLASLt.

CUDA_C  := $(wildcard kernels/cuda/*.c)
CUDA_CU := $(wildcard kernels/cuda/*.cu)
ifeq ($(origin NVCC),undefined)
NVCC    := $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
endif
ifneq ($(NVCC),)
HAVE_NVCC := $(shell $(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
HAVE_CUBLASLT := $(shell echo '\#include <cublasLt.h>' | $(CC) -isystem $(CUDA_HOME)/include -E - >/dev/null 2>&1 && echo yes)
endif
ifneq ($(and $(HAVE_NVCC),$(HAVE_CUBLASLT)),)
# Machine code for these, and PTX of the last that has no letter, which drivers translate for newer devices. Code for 80
# runs on 86 and code for 120 on 121, but not code for 80 on 87 (Jetson Orin); 90a is Hopper with its own instructions. Each
# takes its time to compile: the default covers data centre cards and the RTX 30 and 40 series; CUDA_ARCHS=90a is quick; a
# release for everybody is RELEASE=1, with 89 at the end because its PTX serves all that is newer and not named.
CUDA_ARCHS ?= $(if $(RELEASE),80 86 87 90a 120 89,80 90a 89)
CUDA_PTX   := $(lastword $(filter-out %a,$(CUDA_ARCHS)))
NVCC_ARCH  := $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
              $(foreach arch,$(CUDA_PTX),-gencode arch=compute_$(arch),code=compute_$(arch))
# nvcc compiles the host side of kernels as C++, of which nothing may remain that wants a C++ library. (Its stubs keep
# handles of kernels in static variables; one thread launches.)
NVCCFLAGS  := -O3 -g -lineinfo -I. $(NVCC_ARCH) -Xcompiler -fno-exceptions,-fno-rtti,-fno-threadsafe-statics
CFLAGS_ALL += -DDFX_HAVE_CUDA=1 -isystem $(CUDA_HOME)/include
# cuBLASLt is not among the linked libraries: kernels/cuda/cuda_gemm.c loads it when a backend opens.
LDLIBS_ALL := -L$(CUDA_HOME)/lib64 -lcudart_static $(LDLIBS_ALL) -lrt
LIB_SRC += $(CUDA_C)
CU_OBJ  := $(CUDA_CU:%.cu=$(B)/%.cu.o)
endif

LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(CU_OBJ)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(B)/%.o)
TEST_BIN := $(TEST_OBJ:.o=)
TEST_HELP_OBJ := $(TEST_HELP_SRC:%.c=$(B)/%.o)
CUDA_CHECK_OBJ := $(CUDA_CHECK_SRC:%.c=$(B)/%.o)
FUZZ_OBJ := $(FUZZ_SRC:%.c=$(B)/%.o) $(B)/tests/fuzz/fuzzing.o

# ---- Building

.PHONY: all tests need need-tests FORCE
.SECONDARY:
all: dfx-edge ## build ./dfx-edge (the default)

# V=1 shows the commands.
Q := $(if $(V),,@)

# Variants share the name ./dfx-edge, so time stamps cannot tell whether it is the right one.
dfx-edge: $(B)/dfx-edge FORCE
	@cmp -s $< $@ || cp -f $< $@

$(B)/libdfx.a: $(LIB_OBJ)
	@echo "  AR    $@"
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/dfx-edge: $(CLI_OBJ) $(B)/libdfx.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -o $@ $^ $(LDLIBS_ALL) $(LDLIBS)

$(B)/tests/test_%: $(B)/tests/test_%.o $(TEST_HELP_OBJ) $(B)/libdfx.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LDLIBS_ALL) $(LDLIBS)

$(B)/tests/cuda_check: $(CUDA_CHECK_OBJ) $(TEST_HELP_OBJ) $(B)/libdfx.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS_ALL) $(LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LDLIBS_ALL) $(LDLIBS)

$(B)/tests/fuzz/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/fuzzing.o $(B)/libdfx.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(LDLIBS_ALL) $(LDLIBS)

tests: $(TEST_BIN) ## build the test programs of VARIANT (release or san)

$(B)/%.o: %.c $(B)/flags | need
	@echo "  CC    $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(OWN_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/%.cu.o: %.cu $(B)/flags | need
	@echo "  NVCC  $<"
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -c -o $@ $<

# The assembler takes these in, so the compiler's list of what an object is made from lacks them.
$(B)/offload/profiles.o: $(wildcard offload/profiles/*.profile)

$(CLI_OBJ): OWN_CFLAGS := -DDFX_DATADIR='"$(DATADIR)"'
$(CLI_OBJ): $(B)/flags-tools
$(TEST_OBJ) $(TEST_HELP_OBJ) $(CUDA_CHECK_OBJ): | need-tests

# These files change only when their text does: other flags, or another PREFIX, rebuild what they touch and no more.
$(B)/flags: export TEXT = $(CC) $(CFLAGS_ALL) $(CFLAGS) $(NVCCFLAGS)
$(B)/flags-tools: export TEXT = $(DATADIR)
$(B)/flags $(B)/flags-tools: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' "$$TEXT" | cmp -s - $@ || printf '%s\n' "$$TEXT" >$@

# One line about missing libraries rather than a page from the compiler.
need: ; @tools/setup.sh --need build
need-tests: ; @tools/setup.sh --need check

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(TEST_HELP_OBJ:.o=.d) $(CUDA_CHECK_OBJ:.o=.d)
-include $(FUZZ_OBJ:.o=.d)

# ---- From nothing to a picture, or to tested. The build is a second make, for two reasons: it must read anew what
# setup has just installed, and a check needs two variants. It runs a job a processor unless -j says otherwise.

.PHONY: setup demo check
export DFX_TOKENIZERS ?= ../shared/tokenizers
PROCESSORS := $(shell nproc)
JOBS = $(or $(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))),$(PROCESSORS))
SUBMAKE = +@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(PROCESSORS))
DEMO_PROMPT := a red ball on a green hill under a night sky

setup: ## install the packages that building and testing need (Debian, Ubuntu; as root or with sudo)
	@tools/setup.sh check

demo: ## install what is missing, build, and make a picture with the bundled model
	@tools/setup.sh build
	$(SUBMAKE) VARIANT=release dfx-edge
	./dfx-edge "$(DEMO_PROMPT)"
	@echo "The picture is $(CURDIR)/$$(ls -t dfx-*.png | head -n 1)"

check: ## install what is missing, build, and run every test that this machine can run
	@tools/setup.sh check
	$(SUBMAKE) VARIANT=san tests
	$(SUBMAKE) VARIANT=release dfx-edge
	@DFX_EDGE=$(CURDIR)/dfx-edge tools/run_tests.sh $(JOBS) build/check $(TEST_SRC:%.c=build/san/%) \
	    $(sort $(wildcard tests/cli_*.sh)) tools/check_layers.sh tools/check_format.sh

# Every op against the CPU backend, and the device as a whole. Not in `check`, which needs no GPU; skipped (77) is no failure here.
.PHONY: check-cuda
ifneq ($(CU_OBJ),)
check-cuda: $(B)/tests/cuda_check ## check the CUDA backend on this machine's GPU; CHECK_CUDA="--time --only TEXT"
	@$< $(CHECK_CUDA) || [ $$? = 77 ]
else
check-cuda:
	@echo 'skipped: $(CUDA_INFO)'
endif

# Readers of files against bytes that no writer made: each target of tests/fuzz for FUZZ_SECONDS, by default two minutes in
# all. A tests/fuzz/fuzz_NAME.c is run along by being there, on seeds from tests/fuzz/seeds/NAME.
.PHONY: fuzz fuzz-programs
export CLANG ?= clang
FUZZ_SECONDS = $(shell expr 120 / $(words $(FUZZ_SRC)))
fuzz-programs: $(FUZZ_SRC:%.c=$(B)/%)

fuzz: ## fuzz the readers of files, FUZZ_SECONDS=20 each (default: two minutes in all)
	+@if tools/setup.sh --has clang; then \
	    $(MAKE) --no-print-directory -j$(JOBS) VARIANT=fuzz CC=$(CLANG) NVCC= fuzz-programs && \
	    tests/fuzz/run.sh $(FUZZ_SECONDS) build/fuzz $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%); \
	else \
	    echo 'fuzz: skipped: no clang with libFuzzer here; "tools/setup.sh fuzz" installs it'; \
	fi

.PHONY: plans
plans: $(B)/tests/test_plan_flux ## write tests/plans anew; review them as a diff
	@mkdir -p tests/plans
	DFX_WRITE_PLANS=1 $(B)/tests/test_plan_flux

# ---- Installing

.PHONY: install uninstall
BIN_TO  := $(DESTDIR)$(abspath $(PREFIX))/bin
LIB_TO  := $(DESTDIR)$(abspath $(PREFIX))/lib
INC_TO  := $(DESTDIR)$(abspath $(PREFIX))/include
DATA_TO := $(DESTDIR)$(DATADIR)
DOC_TO  := $(DESTDIR)$(abspath $(PREFIX))/share/doc/dfx-edge
SCENES   = $(shell cd models && find scenes -type f)

# The public header is one file: the statuses it speaks of are spliced in, and nothing else of ours may remain.
$(B)/dfx.h: models/dfx.h core/status.h Makefile
	@mkdir -p $(@D)
	@sed -e '/^#include "core\/status\.h"/{r core/status.h' -e 'd;}' $< >$@.tmp
	@! grep -n '^ *# *include *"' $@.tmp || { echo "models/dfx.h may include core/status.h only" >&2; exit 1; }
	@mv $@.tmp $@

install: $(B)/dfx-edge $(B)/libdfx.a $(B)/dfx.h ## install under PREFIX (default /usr/local), staged in DESTDIR
	install -d $(BIN_TO) $(LIB_TO) $(INC_TO) $(DATA_TO) $(DOC_TO)
	install -m 755 $(B)/dfx-edge $(BIN_TO)/dfx-edge
	install -m 644 $(B)/libdfx.a $(LIB_TO)/libdfx.a
	install -m 644 $(B)/dfx.h $(INC_TO)/dfx.h
	@for file in $(SCENES); do install -D -m 644 models/$$file $(DATA_TO)/$$file || exit 1; done
	install -m 644 LICENSE $(DOC_TO)/LICENSE

uninstall: ## remove what install put there
	rm -f $(BIN_TO)/dfx-edge $(LIB_TO)/libdfx.a $(INC_TO)/dfx.h
	rm -rf $(DATA_TO) $(DOC_TO)

# ---- Looking around

.PHONY: info help clean format
INFO = printf '%-14s %s\n'

info: ## say what was found, and what is left out and why
	@$(INFO) dfx-edge "$(VERSION), variant $(VARIANT), PREFIX $(PREFIX)"
	@$(INFO) compiler "$$($(CC) --version 2>/dev/null | head -n 1 | grep . || echo '$(CC) not found') ($$($(CC) -dumpmachine 2>/dev/null))"
	@for lib in $(PKGS); do \
	    $(INFO) $$lib "$$(pkg-config --modversion $$lib 2>/dev/null || echo 'not found: make setup installs it')"; \
	done
	@$(INFO) openblas "$$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | sed -n 's/.*libopenblas\.so\.0 .*=> //p' | head -n 1 | \
	    grep . || echo 'not found: make setup installs it') (loaded at run time)"
	@$(INFO) mimalloc "$$(echo '#include <mimalloc.h>' | $(CC) $(MIMALLOC_CFLAGS) -E -dM -x c - 2>/dev/null | \
	    sed -n 's/.*MI_MALLOC_VERSION *\([0-9]\)\([0-9]\)\([0-9]\).*/\1.\2.\3/p' | grep . || echo 'not found: make setup installs it')"
	@$(INFO) cmocka "$$(pkg-config --modversion cmocka 2>/dev/null || echo 'not found: tests are left out; make setup installs it')"
	@$(INFO) clang-format "$$(clang-format --version 2>/dev/null | sed 's/.*version //' | grep . || echo 'not found: check of the format is left out')"
	@$(INFO) CUDA '$(CUDA_INFO)'
	@$(INFO) "link libdfx.a" '$(LDLIBS_ALL)'

CUDA_INFO = $(if $(HAVE_NVCC),$(if $(HAVE_CUBLASLT),nvcc $(HAVE_NVCC) for $(CUDA_ARCHS:%=sm_%),cublasLt.h not found beside nvcc \
            $(HAVE_NVCC): the CUDA backend is left out),nvcc not found: the CUDA backend is left out)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "Variables: PREFIX DESTDIR CC CFLAGS LDFLAGS VARIANT=release|san|poison NVCC (empty: no CUDA) CUDA_ARCHS RELEASE=1 V=1 (show commands)"

format: ## lay out the C files as .clang-format says
	@tools/check_format.sh --fix

clean: ## remove what was built
	rm -rf build dfx-edge
