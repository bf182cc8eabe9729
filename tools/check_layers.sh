#!/bin/sh
# Finds faults against the order of the folders. Prints each as file:line: text; exits 1 if there is one.
#
#     core <- quant <- kernels <- offload <- models <- tools      a folder may include what is left of it;
#                                                                 tests may include anything
# - offload sees two headers of kernels: ops.h and backend.h.
# - tools sees models/dfx.h and its own headers; the commands that are about the inside (pack, plan, bench,
#   random-model and inspect, and their parts, such as inspect_table.c) may reach inside.
# - Our headers are included by their path from the root; file names are unique in the tree.
# - mimalloc is known to core/mem.c alone.
# - A file of more than 600 lines holds two concepts.
set -u
cd "$(dirname "$0")/.." || exit 2

find core quant kernels offload models tools tests -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) | LC_ALL=C sort | awk '
function fault(line_no, text) {
    printf "%s:%d: %s\n", path, line_no, text
    n_faults++
}

function folder_of(file) {
    return substr(file, 1, index(file, "/") - 1)
}

function name_of(file) {
    sub(/.*\//, "", file)
    return file
}

function check_include(line_no, target, quoted,    mine, theirs) {
    if (target ~ /^mimalloc/ && path != "core/mem.c")
        fault(line_no, target " is for core/mem.c alone; allocate through core/mem.h")
    if (!(target in exists)) {
        if (quoted)
            fault(line_no, "\"" target "\" is no path from the root to a file of ours")
        return
    }
    if (!quoted)
        fault(line_no, "<" target "> is ours: include it with quotes")
    mine = folder_of(path)
    theirs = folder_of(target)
    if (rank[theirs] > rank[mine])
        fault(line_no, mine " must not include " theirs ": \"" target "\"")
    else if (mine == "offload" && theirs == "kernels" && target !~ /^kernels\/(ops|backend)\.h$/)
        fault(line_no, "offload sees only kernels/ops.h and kernels/backend.h, not \"" target "\"")
    else if (mine == "tools" && theirs != "tools" && target != "models/dfx.h" &&
             name_of(path) !~ /^(cmd_)?(pack|plan|bench|inspect|random)(_[a-z0-9_]*)?\.[ch]$/)
        fault(line_no, "tools sees only models/dfx.h, not \"" target "\"")
}

BEGIN {
    n_folders = split("core quant kernels offload models tools tests", folders)
    for (i = 1; i <= n_folders; i++)
        rank[folders[i]] = i
}

{
    paths[++n_paths] = $0
    exists[$0] = 1
}

END {
    for (i = 1; i <= n_paths; i++) {
        path = paths[i]
        name = name_of(path)
        if (name in owner)
            fault(1, "the file name " name " is taken by " owner[name])
        else
            owner[name] = path

        for (line_no = 0; (getline line < path) > 0;) {
            line_no++
            if (line !~ /^[ \t]*#[ \t]*include[ \t]*[<"]/)
                continue
            match(line, /[<"][^>"]*/)
            check_include(line_no, substr(line, RSTART + 1, RLENGTH - 1), substr(line, RSTART, 1) == "\"")
        }
        close(path)
        if (line_no > 600)
            fault(601, line_no " lines; past 600 a file has two concepts")
    }
    exit n_faults > 0
}'
