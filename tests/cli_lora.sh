#!/bin/bash
# LoRAs from outside: generate --lora, plan, random-model --lora and inspect. $DFX_EDGE is the program; run from the root of the
# repository.
. tests/cli.sh
goldens=$root/tests/golden/lora
small=(--device cpu --size 32x32 --steps 2 --text-length 4 --seed 1)

# A file on every layer: what random-model writes, inspect matches whole.
run 0 "random LoRA" random-model --like scenes --lora 20 -o style.safetensors
run 0 "the same again" random-model --like scenes --lora 20 -o again.safetensors -q
cmp -s style.safetensors again.safetensors || fault "the same seed made other bytes"
run 0 "inspect" inspect -m "$model" style.safetensors
printed_like '54 of 54 modules match'
printed_like 'ranks 20 to 20'
run 2 "random LoRA in int8" random-model --like scenes --lora 4 --quant int8 -o x.safetensors
run 2 "random LoRA as a folder" random-model --like scenes --lora 4 -o folder

run 0 "plain" "${small[@]}" -o plain.png "a red ball"
run 0 "with one" "${small[@]}" --lora style.safetensors:0.5 -o one.png "a red ball"
run 0 "with none of it" "${small[@]}" --lora style.safetensors:0 --no-metadata -o zero.png "a red ball"
run 0 "plain without metadata" "${small[@]}" --no-metadata -o bare.png "a red ball"
run 0 "with two" "${small[@]}" --lora style.safetensors:0.5 --lora="$goldens/peft.safetensors" -o two.png "a red ball"
cmp -s plain.png one.png && fault "a LoRA changed nothing"
cmp -s one.png two.png && fault "the second LoRA changed nothing"
cmp -s zero.png bare.png || fault "strength 0 is not as without"
grep -qaF '<lora:style:0.5>' one.png || fault "the picture does not name its LoRA"

run 0 "room" plan --like flux-dev --lora-max-rank 16 --lora-max 2 --vram-budget 12G
printed_like '341\.02 MiB +LoRA adapters'
run 0 "no room" plan --like flux-dev --vram-budget 12G
grep -q LoRA out && fault "room for LoRAs that nobody asked for"
run 2 "too much room" plan --like flux-dev --lora-max-rank 300 --lora-max 2
run 2 "number without rank" plan --like flux-dev --lora-max 2
run 2 "strength" "${small[@]}" --lora style.safetensors:strong "a"
said 'wanted a strength'
run 6 "no such file" "${small[@]}" --lora nowhere.safetensors "a"
printf 'junk' >junk.safetensors
run 3 "junk" "${small[@]}" --lora junk.safetensors "a"
run 3 "of another model" "${small[@]}" --lora "$model/vae/diffusion_pytorch_model.safetensors" "a"

finish
