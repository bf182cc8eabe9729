/* The commands of dfx-edge and what --help says about them. */
#ifndef DFX_TOOLS_COMMANDS_H
#define DFX_TOOLS_COMMANDS_H

#include <stdio.h>

/* argv[0 .. argc) are the words after the command's name. Each returns the exit code of the program. */
int dfx_cmd_generate(int argc, char **argv);
int dfx_cmd_inspect(int argc, char **argv);
int dfx_cmd_bench(int argc, char **argv);
int dfx_cmd_pack(int argc, char **argv);
int dfx_cmd_plan(int argc, char **argv);
int dfx_cmd_repl(int argc, char **argv);
int dfx_cmd_random_model(int argc, char **argv);

/* Print to standard output; return the exit code, which is not 0 when the text could not be written. */
int dfx_help_overview(void);
int dfx_help_generate(void);
int dfx_help_inspect(void);
int dfx_help_bench(void);
int dfx_help_pack(void);
int dfx_help_plan(void);
int dfx_help_repl(void);
int dfx_help_random_model(void);
int dfx_help_version(void);

/* A page of help, and the exit codes under it. */
int dfx_help_page(const char *text);

/* What to type, in four lines, for someone who typed nothing. */
void dfx_help_usage(FILE *to);

#endif
