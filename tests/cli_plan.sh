#!/bin/bash
# dfx-edge plan, from outside. $DFX_EDGE is the program; run from the root of the repository.
subcommand=(plan)
. tests/cli.sh
profile=$root/offload/profiles/rtx4090.profile
plans=$root/tests/plans

number() { grep -oE "\"$1\":[0-9]+" out | head -n 1 | cut -d: -f2; }

# The text is that of the library, under a line that says what is planned.
run 0 "text" --like flux-dev --vram-budget 8G --gpu rtx3060 --ram-budget 64G
printed_like '^flux-dev, int8, 1024x1024, 28 steps$'
tail -n +3 out | cmp -s - "$plans/flux-dev-int8-rtx3060-8G.txt" || fault "text: not that of tests/plans"
[ ! -s err ] || fault "text: said $(cat err)"

run 0 "JSON" --like flux-dev --vram-budget 8G --json
[ "$(wc -l <out)" -eq 1 ] || fault "JSON: $(wc -l <out) lines"
for key in peak_bytes least_budget_bytes owners resident_pages n_pages streamed_bytes_per_step host_bytes step_seconds \
    image_seconds limit; do
    printed_like "\"$key\":"
done
[ "$(number peak_bytes)" -le $((8 << 30)) ] || fault "JSON: peak above the budget"
least=$(number least_budget_bytes)
cp out by_name
run 0 "profile from a file" --like flux-dev --vram-budget 8G --json --gpu "$profile"
cmp -s out by_name || fault "the profile's file gives another plan than its name"

# The least budget is enough, one byte less is refused with that number.
run 0 "least" --like flux-dev --vram-budget "$least" --json
[ "$(number peak_bytes)" -eq "$least" ] || fault "least: peak is not the budget"
run 4 "below the least" --like flux-dev --vram-budget $((least - 1))
said "--vram-budget $least"
run 4 "offload none" --like flux-dev --vram-budget 12G --offload none
said "--offload none"
run 4 "little RAM" --like flux-dev --vram-budget 8G --offload ram --ram-budget 1G
said "--ram-budget"
run 0 "nvme" --like flux-dev --vram-budget 6G --offload nvme --json
printed_like '"limit":"disk"'

# The bundled model and its architecture are one.
run 0 "a model" --model "$model" --device cpu --json
cp out opened
run 0 "its architecture" --like scenes --quant stored --device cpu --json
cmp -s out opened || fault "scenes: $(cat opened) and $(cat out)"
run 0 "smaller" --model "$model" --device cpu --size 64x64 --steps 1 --vram-budget 64M
printed_like '^scenes, stored, 64x64, 1 step$'

# This machine's own devices: what was measured of them is in no cache here.
run 0 "the processor" --like scenes --device cpu -v
said "machine profile: cpu, shipped, for "
if CUDA_VISIBLE_DEVICES=-1 "$edge" plan --like scenes --device cuda >out 2>err; then
    fault "a GPU that is not there: a plan"
fi
name="a GPU that is not there"
said "cuda"
run 0 "a GPU that need not be there" --like scenes --device cuda --gpu h200

# Several pictures: together where the disk is too slow for one, one after the other where all stays.
run 0 "together" --like flux-dev --vram-budget 4G --offload nvme -n 8 --ram-budget 64G
printed_like '^flux-dev, int8, 1024x1024, 28 steps, 8 pictures$'
printed_like '^4 pictures together: [0-9.]+ s, [0-9.]+ s each; the first ones [0-9.]+ s$'
run 0 "one by one" --like flux-dev --vram-budget 12G -n 8
printed_like '^a picture: '
run 0 "together, JSON" --like flux-dev --vram-budget 4G --offload nvme --count 8 --json
printed_like '"pictures":8,"together":4,'
run 2 "no picture" --like flux-dev -n 0
said "--count"

run 2 "neither" --vram-budget 8G
said "--like"
run 2 "both" --like scenes --model "$model"
run 2 "unknown architecture" --like sdxl
said "flux-dev, flux-schnell, scenes"
run 2 "unknown profile" --like scenes --gpu rtx9999
said "rtx4090"
run 2 "unknown format" --like scenes --quant int4
run 2 "a prompt" --like scenes "a cat"
said "a cat"
run 2 "too large" --like scenes --size 16384x16384
said "pixels"
run 6 "no such model" --model "$dir/none"
run 0 "help" --help
printed_like '^Usage$'

finish
