#!/usr/bin/env bash
# Runs fuzz targets one after the other, and ends with a line that counts inputs and findings.
#
#     tests/fuzz/run.sh SECONDS BUILD_FOLDER NAME...
#
# NAME is BUILD_FOLDER/tests/fuzz/fuzz_NAME. It starts from tests/fuzz/seeds/NAME and from BUILD_FOLDER/corpus/NAME, where it
# puts what it finds interesting, so that the next run goes on from there. An input that is a finding (a crash, a report of a
# sanitizer, a leak, more than 10 s or 512 MB) is kept in BUILD_FOLDER/found. Exits 1 when there was one.
set -u
seconds=$1 build=$2
shift 2
found=$build/found inputs=0 findings=0
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:quarantine_size_mb=16}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
mkdir -p "$found"
TMPDIR=$(mktemp -d /dev/shm/dfx-fuzz.XXXXXX 2>/dev/null || mktemp -d "${TMPDIR:-/tmp}/dfx-fuzz.XXXXXX") || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

for name in "$@"; do
    corpus=$build/corpus/$name log=$build/$name.log
    mkdir -p "$corpus"
    "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=512 -malloc_limit_mb=256 \
        -max_len=16384 -print_final_stats=1 -artifact_prefix="$found/$name-" "$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1 </dev/null
    status=$?
    n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    covered=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
    inputs=$((inputs + ${n:-0}))
    word=ok
    if [ $status -ne 0 ]; then
        word=FOUND
        findings=$((findings + 1))
    fi
    printf '%-5s  %-16s %9d inputs in %d s, %s\n' $word "$name" "${n:-0}" "$seconds" "$covered"
    [ $status -eq 0 ] || tail -n 40 "$log"
done

printf '\nfuzz: %d formats, %d inputs, %d findings\n' $# $inputs $findings
[ $findings -eq 0 ]
