# What the tests of the program from outside share. Sourced by tests/cli_*.sh, from the root of the repository: afterwards the test
# is in an empty folder of its own, which goes when it ends, the bundled model is the one that is meant, and nothing is read from
# standard input.
#
#     subcommand=(plan)                                # where all calls of `run` begin with the same words
#     . tests/cli.sh
#     run 0 "JSON" --like flux-dev --json              # the exit code wanted, a name for messages, and what is typed
#     printed '"step_seconds"'
#     finish
test_name=$(basename "$0" .sh)
[ -x "${DFX_EDGE:-}" ] && [ -f models/scenes/model_index.json ] || { echo "$test_name: skipped: no \$DFX_EDGE or no models/scenes"; exit 77; }
edge=$(realpath "$DFX_EDGE")
root=$PWD
model=$root/models/scenes
dir=$(mktemp -d "${TMPDIR:-/tmp}/dfx-cli.XXXXXX") || exit 1
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir cache
export DFX_MODEL=$model XDG_CACHE_HOME=$dir/cache # without profiles that were measured here
exec </dev/null
faults=0
name=

fault() { echo "$test_name: $*"; faults=$((faults + 1)); }
finish() {
    [ $faults -eq 0 ] || { echo "$test_name: faults: $faults"; exit 1; }
    echo "$test_name: ok"
}

# run CODE NAME WORDS...: the program ends with CODE; its output is in the files out and err.
run() {
    local want=$1 got
    name=$2
    shift 2
    "$edge" "${subcommand[@]}" "$@" >out 2>err
    got=$?
    [ $got -eq "$want" ] || fault "$name: exit code $got instead of $want: $(head -c 300 err)"
}
# What standard error and standard output hold: a text, or with _like a pattern.
said() { grep -qF -e "$1" err || fault "$name: not said: $1: $(head -c 600 err)"; }
said_like() { grep -qE -e "$1" err || fault "$name: not said: $1: $(head -c 600 err)"; }
printed() { grep -qF -e "$1" out || fault "$name: not printed: $1: $(head -c 600 out)"; }
printed_like() { grep -qE -e "$1" out || fault "$name: not printed: $1: $(head -c 600 out)"; }
# lines N: of standard error.
lines() { [ "$(wc -l <err)" -eq "$1" ] || fault "$name: $(wc -l <err) lines instead of $1: $(head -c 600 err)"; }
is_file() { [ -s "$1" ] || fault "$name: no file $1"; }
# The picture without its texts, which tell what it was made with: from the first IDAT chunk on.
pixels() { tail -c "+$(LC_ALL=C grep -abo IDAT "$1" | head -n 1 | cut -d: -f1)" "$1"; }
same() { cmp -s <(pixels "$1") <(pixels "$2") || fault "$name: $1 and $2 differ"; }
differ() { ! cmp -s <(pixels "$1") <(pixels "$2") || fault "$name: $1 and $2 are the same"; }
# Big-endian width and height of a PNG.
png_size() { od -An -tu1 -j16 -N8 "$1" | awk '{print $3 * 256 + $4 "x" $7 * 256 + $8}'; }
