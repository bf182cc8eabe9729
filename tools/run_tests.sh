#!/usr/bin/env bash
# Runs test programs, some at a time, prints a line for each, and ends with `N passed, N failed, N skipped`.
#
#     tools/run_tests.sh JOBS LOG_FOLDER PROGRAM...
#
# A PROGRAM named *.sh counts as one test: exit 0 passed, 77 skipped, anything else failed. Every other PROGRAM
# is a cmocka test and counts as many tests as it announced. A test that it announced and that neither passed
# nor was skipped has failed, so a program that dies, hangs, or leaves early cannot look better than it is.
# What failing programs said is shown in full, after the table. Exits 1 on a failure or if nothing ran.
set -u
jobs=$1
export log_folder=$2 time_limit_s=${DFX_TEST_TIMEOUT_S:-600}
shift 2

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1} # programs run side by side already

# ASan of gcc 11 and 12 now and then dies at start where the kernel spreads addresses widely, so the spreading
# is switched off where the machine lets us.
no_aslr=
setarch -R true 2>/dev/null && no_aslr="setarch -R"
export no_aslr

# Prints `passed failed skipped` from the output of a cmocka program, whose lines are in essence
#     [==========] Running 3 test(s).     (from 1.1.6 on with the group's name: `[==========] tests: Running ...`)
#     [       OK ] name                   or [  SKIPPED ] name, [  FAILED  ] name, [  ERROR   ] name
#     [==========] 3 test(s) run.         after which the skipped and failed ones are listed once more
count_cmocka() {
    awk '
    /^\[==========\] (.*: )?Running [0-9]+ test\(s\)/ {
        match($0, /Running [0-9]+/)
        announced += substr($0, RSTART + 8, RLENGTH - 8)
        in_group = 1
    }
    /^\[==========\] .*test\(s\) run/ { in_group = 0 }
    in_group && /^\[       OK \] / { passed++ }
    in_group && /^\[  SKIPPED \] / { skipped++ }
    /^\[  FAILED  \] GROUP TEARDOWN/ { failed++ }
    END { print passed + 0, announced - passed - skipped + failed, skipped + 0 }' "$1"
}

run_one() {
    local program=$1 name passed failed skipped status start note=
    name=$(basename "$program" .sh)
    local log=$log_folder/$name.log
    ulimit -c 0

    # The outer redirection is for what this shell says about a program that a signal killed.
    start=$(date +%s.%N)
    if [[ $program == *.sh ]]; then
        { timeout -k 10 "$time_limit_s" "$program" >"$log" 2>&1 </dev/null; } 2>>"$log"
        status=$?
        case $status in
        0) passed=1 failed=0 skipped=0 ;;
        77) passed=0 failed=0 skipped=1 note=$(tail -n 1 "$log") ;;
        *) passed=0 failed=1 skipped=0 note="exit status $status" ;;
        esac
    else
        { timeout -k 10 "$time_limit_s" $no_aslr "$program" >"$log" 2>&1 </dev/null; } 2>>"$log"
        status=$?
        read -r passed failed skipped < <(count_cmocka "$log")
        if ((passed + failed + skipped == 0)); then
            failed=1 note="announced no test"
        elif ((status != 0 && failed == 0)); then
            failed=1 note="exit status $status after its last test"
        elif ((failed > 0)); then
            note="exit status $status"
        fi
    fi
    ((status == 124 || status == 137)) && note="stopped after $time_limit_s s"

    local word=ok
    ((skipped > 0 && passed == 0)) && word=skip
    ((failed > 0)) && word=FAIL
    echo "$passed $failed $skipped" >"$log_folder/$name.count"
    printf '%-4s  %-28s %4d passed %3d failed %3d skipped %6.1f s%s\n' "$word" "$name" \
        "$passed" "$failed" "$skipped" "$(echo "$start $(date +%s.%N)" | awk '{ print $2 - $1 }')" "${note:+  ($note)}"
}
export -f run_one count_cmocka

rm -rf "$log_folder"
mkdir -p "$log_folder"
printf '%s\0' "$@" | xargs -0 -n 1 -P "$jobs" bash -c 'run_one "$1"' run_one

total_passed=0 total_failed=0 total_skipped=0
for program in "$@"; do
    name=$(basename "$program" .sh)
    read -r passed failed skipped <"$log_folder/$name.count" || { passed=0 failed=1 skipped=0; }
    if ((failed > 0)); then
        printf '\n==== %s said:\n' "$program"
        cat "$log_folder/$name.log"
    fi
    ((total_passed += passed, total_failed += failed, total_skipped += skipped))
done

printf '\n%d passed, %d failed, %d skipped\n' "$total_passed" "$total_failed" "$total_skipped"
((total_failed == 0 && total_passed > 0))
