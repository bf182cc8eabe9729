/* See fuzzing.h. A system call that fails here ends the process: nothing about the code under test can be said then. */
#include "tests/fuzz/fuzzing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"

enum { PATH_BYTES = 512, TENSOR_BYTES_MAX = 1 << 20 };

static size_t n_errors, held;

_Noreturn static void finding(const char *what, const char *more) {
    fprintf(stderr, "fuzz: %s%s\n", what, more);
    abort();
}

static void must(int good, const char *what) {
    if (!good) {
        perror(what);
        _exit(2);
    }
}

static void listen(void *user, dfx_level level, const char *text) {
    if (strchr(text, '\n'))
        finding("a message of two lines: ", text);
    n_errors += level == DFX_ERROR;
    if (getenv("FUZZ_SAY"))
        fprintf(stderr, "said: %s\n", text);
}

const dfx_sink fuzz_sink = {.say = listen};

void fuzz_begin(void) {
    n_errors = 0;
    held = dfx_mem_held_bytes();
}

void fuzz_end(dfx_status status) {
    if (status == DFX_OK ? n_errors != 0 : n_errors != 1)
        finding("one error for a failure and none for a success were wanted, not so for: ",
                dfx_status_text(status));
    if (status == DFX_E_INTERNAL)
        finding("a file made an internal error", "");
    if (dfx_mem_held_bytes() != held)
        finding("memory is still held", "");
}

static void write_all(int fd, const uint8_t *data, size_t bytes) {
    for (ssize_t n; bytes > 0; data += n, bytes -= (size_t)n)
        must((n = write(fd, data, bytes)) > 0, "write");
}

const char *fuzz_file(const uint8_t *data, size_t bytes) {
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        must((fd = memfd_create("fuzz", MFD_CLOEXEC)) >= 0, "memfd_create");
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    must(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0, "ftruncate");
    write_all(fd, data, bytes);
    return path;
}

static char folder[PATH_BYTES / 2];

static void remove_folder(void) {
    char command[PATH_BYTES];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    must(system(command) == 0, command);
}

const char *fuzz_folder(void) {
    if (!folder[0]) {
        const char *where = getenv("TMPDIR");
        snprintf(folder, sizeof(folder), "%s/dfx-fuzz.XXXXXX", where ? where : "/tmp");
        must(mkdtemp(folder) != NULL, "mkdtemp");
        atexit(remove_folder);
    }
    return folder;
}

static void path_in_folder(const char *name, char path[PATH_BYTES]) {
    int n = snprintf(path, PATH_BYTES, "%s/%s", fuzz_folder(), name);
    must(n < PATH_BYTES, name);
}

void fuzz_put(const char *name, const uint8_t *data, size_t bytes) {
    char path[PATH_BYTES];
    path_in_folder(name, path);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        must(mkdir(path, 0700) == 0 || errno == EEXIST, path);
        *slash = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0, path);
    write_all(fd, data, bytes);
    close(fd);
}

void fuzz_put_copy(const char *name, const char *of) {
    char *text = NULL;
    size_t bytes = 0;
    must(dfx_file_slurp(of, NULL, 1 << 20, &text, &bytes) == DFX_OK, of);
    fuzz_put(name, (const uint8_t *)text, bytes);
    dfx_free(text);
}

void fuzz_drop(const char *name) {
    char path[PATH_BYTES];
    path_in_folder(name, path);
    must(unlink(path) == 0 || errno == ENOENT, path);
}

const uint8_t *fuzz_next(const uint8_t **data, size_t *bytes, size_t *part_bytes) {
    static const uint8_t nothing[1];
    const uint8_t *part = *data;
    if (!part)
        return NULL;
    const uint8_t *cut = *bytes ? memchr(part, FUZZ_CUT, *bytes) : NULL;
    *part_bytes = cut ? (size_t)(cut - part) : *bytes;
    *bytes -= *part_bytes + (cut != NULL);
    *data = cut ? cut + 1 : NULL;
    return *part_bytes ? part : nothing;
}

void fuzz_read_tensors(const dfx_tensors *set) {
    static float values[TENSOR_BYTES_MAX];
    for (size_t i = 0; i < dfx_tensors_count(set); i++) {
        const dfx_tensor *t = dfx_tensors_at(set, i);
        if (dfx_tensors_find(set, t->name) != t)
            finding("a tensor is not found by its name", "");
        if (t->bytes > TENSOR_BYTES_MAX || t->n_elements > TENSOR_BYTES_MAX)
            continue;
        if (dfx_dtype_is_numeric(t->dtype)) {
            if (dfx_tensors_read_f32(set, t, NULL, values) != DFX_OK)
                finding("a tensor cannot be read as numbers: ", t->name);
        } else if (dfx_tensors_read(set, t, NULL, values) != DFX_OK) {
            finding("a tensor cannot be read: ", t->name);
        }
    }
}
