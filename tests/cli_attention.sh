#!/bin/bash
# --attention-bits of dfx-edge generate, repl, plan and bench, from outside. $DFX_EDGE is the program; run from the root of the
# repository.
. tests/cli.sh
small=(--device cpu --size 64x64 --steps 2 --text-length 16)
prompt="a red ball on a green hill"

# 16 is the default, and its file says nothing of it.
run 0 "default" "${small[@]}" --seed 7 -o default.png "$prompt"
run 0 "16" "${small[@]}" --seed 7 --attention-bits 16 -o 16.png "$prompt"
cmp -s default.png 16.png || fault "--attention-bits 16: another file"
LC_ALL=C grep -qai "attention" 16.png && fault "--attention-bits 16: the PNG tells of it"
run 0 "8" "${small[@]}" --seed 7 --attention-bits 8 -o 8.png "$prompt"
differ default.png 8.png
LC_ALL=C grep -qa "Attention bits: 8, " 8.png || fault "the PNG's parameters do not tell of 8 bits"
LC_ALL=C grep -qa '"attention_bits":8' 8.png || fault "the PNG's JSON does not tell of 8 bits"

# The same from the disk, in a batch file, and line by line.
run 0 "from the disk" "${small[@]}" --seed 7 --attention-bits 8 --offload nvme --vram-budget 24M -o disk.png "$prompt"
cmp -s 8.png disk.png || fault "from the disk: another file"
echo "\"$prompt\" --seed 7 -o line.png" >lines.txt
run 0 "a batch" "${small[@]}" --attention-bits 8 --batch-file lines.txt
cmp -s 8.png line.png || fault "a batch: another file"
name=repl
echo "$prompt" | "$edge" repl "${small[@]}" --seed 7 --attention-bits 8 -o typed.png >out 2>err || fault "repl: $(cat err)"
same 8.png typed*.png

for value in 4 32 eight ''; do
    run 2 "of $value" "${small[@]}" "--attention-bits=$value" "$prompt"
    said '--attention-bits'
    said 'wanted one of 16, 8'
done
ls | grep -q dfx- && fault "a refusal left a picture"
run 0 "help" generate --help
printed '--attention-bits B'

# Faster where there are products for it; 16 bits are the plan without the option.
run 0 "plan" plan --like flux-dev --gpu h200 --vram-budget 12G
cp out default
run 0 "plan in 16" plan --like flux-dev --gpu h200 --vram-budget 12G --attention-bits 16
cmp -s default out || fault "plan: 16 bits are another plan"
run 0 "plan in 8" plan --like flux-dev --gpu h200 --vram-budget 12G --attention-bits 8
printed_like '^flux-dev, int8, 1024x1024, 28 steps, attention in 8 bits$'
step_seconds() { grep -oE '"step_seconds":[0-9.]+' out | cut -d: -f2; }
run 0 "plan in 8, JSON" plan --like flux-dev --gpu h200 --vram-budget 12G --attention-bits 8 --json
printed '"attention_bits":8'
fast=$(step_seconds)
run 0 "plan in 16, JSON" plan --like flux-dev --gpu h200 --vram-budget 12G --json
printed '"attention_bits":16'
awk "BEGIN {exit !($fast < 0.96 * $(step_seconds))}" || fault "plan: $fast s a step in 8 bits, $(step_seconds) in 16"
run 2 "plan in 7" plan --like flux-dev --attention-bits 7
said '--attention-bits'

run 0 "bench" bench image --device cpu --size 64x64 --steps 2 --text-length 16 --runs 1 --attention-bits 8
printed ', attention in 8 bits; profile '
run 0 "bench, JSON" bench image --device cpu --size 64x64 --steps 2 --text-length 16 --runs 1 --attention-bits 8 --json
printed '"attention_bits":8'
run 2 "bench of the machine" bench machine --attention-bits 8
said 'there is no --attention-bits here'

finish
