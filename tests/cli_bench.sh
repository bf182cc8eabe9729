#!/bin/bash
# dfx-edge bench, from outside. $DFX_EDGE is the program. Rates are not judged here: that wants a quiet disk.
[ -x "${DFX_EDGE:-}" ] || { echo "cli_bench: skipped: no \$DFX_EDGE"; exit 77; }
edge=$(realpath "$DFX_EDGE")
dir=$(mktemp -d "${TMPDIR:-/tmp}/dfx-cli.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
faults=0

fault() { echo "cli_bench: $*"; faults=$((faults + 1)); }
run() {
    local want=$1 got
    name=$2
    shift 2
    "$edge" bench "$@" >out 2>err </dev/null
    got=$?
    [ $got -eq "$want" ] || fault "$name: exit code $got instead of $want: $(head -c 300 err)"
}
said() { grep -qF -e "$1" err || fault "$name: not said: $1: $(head -c 300 err)"; }
printed() { grep -qE -e "$1" out || fault "$name: not printed: $1: $(head -c 300 out)"; }

run 0 "help" --help
printed '^ +--queue-depth N'
run 2 "nothing"
said 'wanted "io"'
run 2 "another" gpu
said 'found gpu'
run 2 "no file" io
said 'found 0 words'
run 2 "depth" io --queue-depth 0 model.safetensors
said '--queue-depth'
run 6 "missing" io model.safetensors
said 'model.safetensors'
echo no model >model.safetensors
run 3 "not packed" io model.safetensors
rm model.safetensors

"$edge" random-model --like tiny -o model.safetensors >/dev/null 2>err || fault "no model: $(head -c 300 err)"
"$edge" bench io --runs 3 --queue-depth 2 model.safetensors >out 2>err </dev/null
name=io
case $? in
0)
    printed '^model\.safetensors: [0-9]+ pages, .*; 2 requests of 1\.0 MiB in flight$'
    printed '^bare io_uring +[0-9.]+ GB/s  \(median of 3, '
    printed '^page feed +[0-9.]+ GB/s  \(median of 3, '
    printed '^feed / bare +[0-9.]+  through io_uring, direct$'
    run 0 "JSON" io --runs 1 --json model.safetensors
    printed '^\{"path":"model\.safetensors",.*"bare_bytes_per_s":\[[0-9.e+]+\],"feed_bytes_per_s":\[[0-9.e+]+\],.*"ratio":'
    ;;
6) said 'needs io_uring and O_DIRECT' ;; # a container or a file system without them
*) fault "io: exit code: $(head -c 300 err)" ;;
esac

[ $faults -eq 0 ]
