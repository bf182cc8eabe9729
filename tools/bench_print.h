/* What bench found: for a reader, for a program, and as a machine profile. Nothing flushes standard output. */
#ifndef DFX_TOOLS_BENCH_PRINT_H
#define DFX_TOOLS_BENCH_PRINT_H

#include "core/file.h"
#include "tools/bench_io.h"
#include "tools/bench_machine.h"
#include "tools/bench_step.h"

/* Takes the reference; nothing is printed for NULL, which is out of memory. */
void dfx_bench_print_json(json_t *json);

/* A line that says what was measured on, with what. */
void dfx_bench_print_device(const dfx_device_facts *facts);
/* What the profile says of the link, behind its name; nothing for 0. */
void dfx_bench_print_link(double bytes_per_s);
json_t *dfx_bench_device_json(const dfx_device_facts *facts); /* a new reference, or NULL */

void dfx_bench_print_io(const char *path, const dfx_bench_io *result);
void dfx_bench_print_io_json(const char *path, const dfx_bench_io *result);

/* Rates, blocks beside what the profile says of them, and a picture. step NULL: it could not be checked. */
void dfx_bench_print_machine(const dfx_bench_machine *machine, const dfx_bench_step *step);
void dfx_bench_print_machine_json(const dfx_bench_machine *machine, const dfx_bench_step *step);

/* The profile into a file that was begun, which is committed. Errors: DFX_E_IO, DFX_E_NOFIT; nothing is left then. */
dfx_status dfx_bench_write_profile(const dfx_profile *profile, const dfx_sink *sink,
                                   dfx_file_writer *writer);

#endif
