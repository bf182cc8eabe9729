#!/bin/bash
# What a plan promises and what a run takes, from outside: the budget, the peak, and the memory of the process. $DFX_EDGE is the
# program; run from the root of the repository.
. tests/cli.sh
number() { grep -oE "\"$2\": ?[0-9]+" "$1" | head -n 1 | grep -oE '[0-9]+$'; }
shape=(--device cpu --size 64x64 --steps 3 --threads 2)
prompt="a red ball"

"$edge" plan -m "$model" "${shape[@]}" --json >plan || { fault "plan failed"; exit 1; }
least=$(number plan least_budget_bytes)
all=$(number plan peak_bytes)
"$edge" -q -m "$model" "${shape[@]}" --seed 3 -o all.png "$prompt" || fault "the run without a budget failed"

# Five budgets from all of it down to the least, each way of streaming: the same file, the planned peak, the planned memory.
for part in 0 1 2 3 4; do
    budget=$((least + (all - least) * part / 4))
    for way in ram nvme auto; do
        name="$budget bytes, $way"
        "$edge" plan -m "$model" "${shape[@]}" --vram-budget $budget --offload $way --json >plan || fault "$name: no plan"
        "$edge" -q -m "$model" "${shape[@]}" --vram-budget $budget --offload $way --seed 3 --json -o one.png "$prompt" >run \
            || { fault "$name: the run failed"; continue; }
        cmp -s one.png all.png || fault "$name: another picture"
        peak=$(number run peak_device_bytes)
        [ "$peak" -le $budget ] || fault "$name: peak $peak"
        [ "$peak" -eq "$(number plan peak_bytes)" ] || fault "$name: peak $peak, planned $(number plan peak_bytes)"
        planned=$(($(number plan peak_bytes) + $(number plan host_bytes)))
        resident=$(number run peak_resident_bytes)
        [ "$resident" -le $((planned + planned / 50 + (32 << 20))) ] || fault "$name: $resident bytes resident, planned $planned"
    done
done

# Where pages come slowly four pictures go together: the files that they are alone, the planned peak, and little more moved than for
# one.
name="four together"
sed -E 's/^((link|disk)_bytes_per_s) =.*/\1 = 1e6/' "$root/offload/profiles/cpu.profile" >slow.profile
together=("${shape[@]}" --steps 4 --vram-budget $((least + (all - least) / 4)) --offload nvme)
"$edge" plan -m "$model" "${together[@]}" --gpu slow.profile -n 4 --json >plan 2>/dev/null || fault "$name: no plan"
[ "$(number plan together)" -eq 4 ] || fault "$name: $(number plan together) in the plan"
"$edge" -m "$model" "${together[@]}" --profile slow.profile --seed 3 -n 4 --json -o four.png "$prompt" >run 2>err \
    || fault "$name: the run failed: $(head -c 300 err)"
grep -q '^1-4/4  denoise 4/4  ' err || fault "$name: progress does not say so: $(head -c 300 err)"
[ "$(number run peak_device_bytes)" -eq "$(number plan peak_bytes)" ] || fault "$name: peak is not the plan's"
moved=$(grep -oE '"copied_bytes": [0-9]+' run | awk '{sum += $2} END {print sum}')
for seed in 3 4 5 6; do
    "$edge" -q -m "$model" "${together[@]}" --seed $seed --json -o alone.png "$prompt" >run
    cmp -s alone.png four-$seed.png || fault "$name: seed $seed is another picture"
done
[ "$moved" -lt $(($(number run copied_bytes) * 2)) ] || fault "$name: $moved bytes moved, $(number run copied_bytes) for one"
# No more go together than there are steps, as planned.
"$edge" plan -m "$model" "${together[@]}" --steps 3 --gpu slow.profile -n 4 --json >plan 2>/dev/null || fault "$name: no plan of 3 steps"
"$edge" -m "$model" "${together[@]}" --steps 3 --profile slow.profile --seed 3 -n 4 -v -o three.png "$prompt" >run 2>err
grep -q "^up to $(number plan together) pictures are made together" err || fault "$name: not as planned: $(head -c 300 err)"

# One byte less than the least is refused before any work, with the owners and the least.
"$edge" -m "$model" "${shape[@]}" --vram-budget $((least - 1)) -o none.png "$prompt" 2>err
[ $? -eq 4 ] || fault "below the least: not exit code 4"
[ ! -e none.png ] || fault "below the least: wrote a picture"
grep -q -- "--vram-budget $least" err || fault "below the least: does not name it: $(cat err)"
for owner in workspace state activations; do
    grep -q "$owner" err || fault "below the least: no owner $owner"
done

finish
