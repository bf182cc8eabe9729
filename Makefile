# dfx-edge. `make help` lists the targets; `make info` says what was found and what was left out.

VERSION := 0.1.0
PREFIX  ?= /usr/local
VARIANT ?= release
B       := build/$(VARIANT)
CC      ?= gcc

PKGS    := jansson libpng libutf8proc
CSTD    := -std=gnu11
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wno-unused-parameter
OPT_release := -O3 -g -fno-math-errno -fno-trapping-math
OPT_san := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -DDFX_SANITIZED=1
CFLAGS_ALL = $(CSTD) $(WARN) $(OPT_$(VARIANT)) -ffp-contract=off -fno-strict-aliasing -pthread -I. -D_GNU_SOURCE -DDFX_VERSION='"$(VERSION)"' \
             $(shell pkg-config --cflags $(PKGS) 2>/dev/null) $(CFLAGS)
LDLIBS_ALL = $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lmimalloc -lopenblas -lm -pthread $(LDLIBS)
LDFLAGS_ALL = $(filter -fsanitize%,$(OPT_$(VARIANT))) $(LDFLAGS)

LIB_SRC := $(wildcard core/*.c quant/*.c kernels/*.c kernels/cpu/*.c offload/*.c models/*.c)
CLI_SRC := $(wildcard tools/*.c)
TEST_SRC := $(wildcard tests/test_*.c)
TEST_HELP_SRC := $(filter-out $(TEST_SRC) $(wildcard tests/fuzz_*.c),$(wildcard tests/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
TEST_BIN := $(TEST_SRC:tests/%.c=$(B)/tests/%)
TEST_HELP_OBJ := $(TEST_HELP_SRC:%.c=$(B)/%.o)

.PHONY: all tests
all: dfx-edge

dfx-edge: $(B)/dfx-edge
	@cp -f $< $@

$(B)/libdfx.a: $(LIB_OBJ)
	@rm -f $@; ar rcs $@ $^

$(B)/dfx-edge: $(CLI_OBJ) $(B)/libdfx.a
	$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS_ALL)

$(B)/tests/test_%: $(B)/tests/test_%.o $(TEST_HELP_OBJ) $(B)/libdfx.a
	$(CC) $(LDFLAGS_ALL) -o $@ $^ -lcmocka $(LDLIBS_ALL)

tests: $(TEST_BIN)

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

.SECONDARY:
-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_SRC:%.c=$(B)/%.d) $(TEST_HELP_OBJ:.o=.d)
