/* The commands of dfx-edge and what --help says about them. */
#ifndef DFX_TOOLS_COMMANDS_H
#define DFX_TOOLS_COMMANDS_H

#include <stdio.h>

/* argv[0 .. argc) are the words after the command's name. Each returns the exit code of the program. */
int dfx_cmd_generate(int argc, char **argv);
int dfx_cmd_inspect(int argc, char **argv);

/* Print to standard output; return the exit code, which is not 0 when the text could not be written. */
int dfx_help_overview(void);
int dfx_help_generate(void);
int dfx_help_inspect(void);
int dfx_help_version(void);

/* What to type, in four lines, for someone who typed nothing. */
void dfx_help_usage(FILE *to);

#endif
