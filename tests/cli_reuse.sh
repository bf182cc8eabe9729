#!/bin/bash
# --reuse of dfx-edge generate, plan and bench, from outside. $DFX_EDGE is the program; run from the root of the repository.
. tests/cli.sh
small=(--device cpu --size 64x64 --steps 6 --text-length 16)
prompt="a red ball on a green hill"

# Six steps: the first whole, three not, one whole, the last whole. A 0 is no reuse, and its file says nothing of it.
run 0 "whole" "${small[@]}" --seed 7 -o whole.png "$prompt"
run 0 "of 0" "${small[@]}" --seed 7 --reuse 0 -o zero.png "$prompt"
cmp -s whole.png zero.png || fault "--reuse 0: another file"
run 0 "of all" "${small[@]}" --seed 7 --reuse 1000 -o all.png "$prompt"
said_like '^all.png  64x64  6 steps, 3 reused  '
differ whole.png all.png
LC_ALL=C grep -qa "Reuse: 1000, Reused steps: 3, " all.png || fault "the PNG does not tell of its reuse"
run 0 "of nothing" "${small[@]}" --seed 7 --reuse 0.000001 -o none.png "$prompt"
said_like '6 steps, 0 reused'
same whole.png none.png

# The loss, in words and for programs; the picture is the one without the check.
run 0 "check" "${small[@]}" --seed 7 -n 2 --reuse 1000 --reuse-check --json -o check.png "$prompt"
same all.png check-7.png
[ "$(grep -cE -e '--reuse 1000: 3 of 6 steps reused; against all steps in full: [0-9.]+ dB' err)" -eq 2 ] || fault "check: $(cat err)"
[ "$(grep -cE '"reuse": 1000, "reused_steps": 3, "reuse_psnr_db": [0-9.]+, ' out)" -eq 2 ] || fault "check: $(cat out)"
run 0 "check of nothing" "${small[@]}" --seed 7 --reuse 0.000001 --reuse-check --json -o check.png "$prompt"
said_like '0 of 6 steps reused; against all steps in full: no difference'
printed_like '"reuse_psnr_db": null'
run 0 "help" generate --help
printed_like '--reuse T '
printed_like '--reuse-check'

run 2 "check alone" "${small[@]}" --reuse-check "$prompt"; said_like 'wanted --reuse'
for value in -0.1 nan x ''; do
    run 2 "reuse $value" "${small[@]}" "--reuse=$value" "$prompt"; said_like '--reuse'
done
ls | grep -q dfx- && fault "a refusal left a picture"

# What the plan takes for it: more state, and a least budget that is enough.
run 0 "plan" plan --like scenes --device cpu --size 64x64 --reuse --json
least=$(grep -oE '"least_budget_bytes":[0-9]+' out | cut -d: -f2)
run 0 "plan without" plan --like scenes --device cpu --size 64x64 --json
[ "$(grep -oE '"least_budget_bytes":[0-9]+' out | cut -d: -f2)" -lt "$least" ] || fault "plan: --reuse takes nothing"
run 0 "plan in words" plan --like scenes --device cpu --reuse
printed_like ', with reuse$'

run 0 "bench" bench image --device cpu --size 64x64 --steps 6 --text-length 16 --runs 1 --reuse 1000
printed_like '^reuse 1000: 3 of 6 steps reused; against whole steps: [0-9.]+ dB$'
run 0 "bench, JSON" bench image --device cpu --size 64x64 --steps 6 --text-length 16 --runs 1 --reuse 1000 --json
printed_like '"reused_steps":3,"reuse_psnr_db":[0-9.]+'
run 2 "bench of ops" bench ops --reuse 1; said_like 'there is no --reuse here'

finish
