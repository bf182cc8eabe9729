#!/bin/bash
# dfx-edge bench, from outside. $DFX_EDGE is the program; run from the root of the repository. Rates are not judged here:
# that wants a quiet machine.
[ -x "${DFX_EDGE:-}" ] && [ -f models/scenes/model_index.json ] || { echo "cli_bench: skipped: no \$DFX_EDGE or no models/scenes"; exit 77; }
edge=$(realpath "$DFX_EDGE")
export DFX_MODEL=$PWD/models/scenes
dir=$(mktemp -d "${TMPDIR:-/tmp}/dfx-cli.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export XDG_CACHE_HOME=$dir/cache
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
said 'wanted "io" or "machine"'
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

# machine: what it writes is a profile that plans are made with.
planned() {
    "$edge" plan --like flux-dev --device cpu --vram-budget 8G --gpu "$1" --json >plan 2>err ||
        fault "$name: plan --gpu $1: $(head -c 300 err)"
    grep -qE '"step_seconds":[0-9.e-]*[1-9]' plan || fault "$name: no seconds in the plan"
}
run 2 "machine: a word" machine model.safetensors
said '--disk'
run 2 "machine: an option of io" machine --queue-depth 8
said 'bench machine: there is no --queue-depth'
run 2 "io: an option of machine" io --disk . model.safetensors
said 'bench io: there is no --disk'
run 2 "machine: runs" machine --runs 0
said '--runs'
run 2 "machine: threads" machine --threads none
said '--threads'
run 6 "machine: no folder for the profile" machine -o none/a.profile
said 'none/a.profile'
run 6 "machine: no disk" machine --disk none -o a.profile
said 'none'
echo small >small
run 2 "machine: a small file" machine --disk small -o a.profile
said 'small: wanted a file of at least'
[ ! -e a.profile ] || fault "machine: a profile without measurements"

run 0 "machine" machine --runs 1 --disk model.safetensors -o a.profile
printed '^disk +[0-9.]+ GB/s '
printed '^products, int8 +[0-9.e+]+ Gflop/s '
printed '^scenes, 256x256: the plan says [0-9.]+ s a step, measured [0-9.]+ s: ratio '
planned a.profile
# Without -o the profile is all of standard output. A check that cannot be made is a fault, told after the measurements.
DFX_MODEL=$dir/none run 6 "machine: to standard output" machine --runs 1 --threads 1 --disk model.safetensors
said "$dir/none"
cp out b.profile
planned b.profile
run 0 "machine: JSON" machine --runs 1 --disk model.safetensors --json -o c.profile
[ "$(wc -l <out)" -eq 1 ] || fault "machine: JSON: $(wc -l <out) lines"
printed '"rates":\{"disk_bytes_per_s":\{"median":[0-9.e+]+,"values":\[[0-9.e+]+\],"with":".*"check":\{"model":"scenes",'
planned c.profile

# The file that it writes to measure a folder has gone, whatever happens.
if [ "$(df --output=avail -B1 . | tail -n 1)" -gt $((2 << 30)) ]; then
    name="machine: interrupted"
    mkdir folder
    timeout --preserve-status -s TERM 1 "$edge" bench machine --runs 99 --disk folder -o folder/d.profile >out 2>err
    got=$?
    [ $got -eq 130 ] || fault "$name: exit code $got: $(head -c 300 err)"
    [ -z "$(ls -A folder)" ] || fault "$name: left $(ls -A folder)"
fi

[ $faults -eq 0 ]
