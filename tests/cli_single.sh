#!/bin/bash
# Single files from outside: what random-model writes in every layout draws the picture of the folder, or of the same numbers.
# $DFX_EDGE is the program; run from the root of the tree.
. tests/cli.sh

# draw NAME MODEL...: NAME.png
draw() {
    local name=$1
    shift
    run 0 "$name" --device cpu --size 64x64 --steps 2 --text-length 16 --seed 3 --no-metadata -o "$name.png" "$@" "a cat"
}

# parts FOLDER MODEL T5: the options of single files
parts() {
    echo "-m $1/$2 --vae $1/ae.safetensors --clip-l $1/clip_l.safetensors --t5 $1/$3 --tokenizer $1"
}

run 0 "folder" random-model --like tiny -o folder -q
for format in bf16 fp8 fp8-scaled gguf-q8_0; do
    run 0 "$format" random-model --like tiny --layout bfl --format $format -o $format -q
done
for format in bf16 fp8-scaled; do
    run 0 "comfy $format" random-model --like tiny --layout comfy --format $format -o comfy-$format -q
done
run 2 "gguf in one" random-model --like tiny --layout comfy --format gguf-q8_0 -o x
run 2 "fp8 folder" random-model --like tiny --format fp8 -o x
run 2 "a file in a layout" random-model --like tiny --layout bfl -o x.safetensors

draw folder -m folder
draw bf16 $(parts bf16 flux.safetensors t5xxl.safetensors)
said_like 'bf16/flux\.safetensors: FLUX\.1 dev, told by its guidance embedding \(original names, BF16\)'
same bf16.png folder.png
draw comfy-bf16 -m comfy-bf16/flux.safetensors --tokenizer comfy-bf16
same comfy-bf16.png folder.png
draw fp8 $(parts fp8 flux.safetensors t5xxl.safetensors)
draw fp8-scaled $(parts fp8-scaled flux.safetensors t5xxl.safetensors)
draw comfy-fp8-scaled -m comfy-fp8-scaled/flux.safetensors --tokenizer comfy-fp8-scaled
same comfy-fp8-scaled.png fp8-scaled.png
draw gguf $(parts gguf-q8_0 flux.gguf t5xxl.gguf)
cmp -s gguf.png folder.png && fault "Q8_0 changes nothing"
draw parts-of-a-folder -m folder --t5 bf16/t5xxl.safetensors
same parts-of-a-folder.png folder.png

# Packed once, and the second time not.
draw again $(parts bf16 flux.safetensors t5xxl.safetensors)
grep -q packing err && fault "packed again"
same again.png folder.png

# What pack makes of files draws the same; a format that was asked for is the same from wherever.
run 0 "pack" pack bf16/flux.safetensors --vae bf16/ae.safetensors --clip-l bf16/clip_l.safetensors \
    --t5 bf16/t5xxl.safetensors --tokenizer bf16 --quant int8 -o files.safetensors
run 0 "pack folder" pack folder --quant int8 -o from-folder.safetensors
draw files -m files.safetensors
draw from-folder -m from-folder.safetensors
same files.png from-folder.png
run 0 "default name" pack comfy-bf16/flux.safetensors --tokenizer comfy-bf16 --dry-run
said_like '^flux-int8\.safetensors '

# Said before anything is read.
run 3 "transformer alone" -m bf16/flux.safetensors "a cat"
said_like 'no CLIP text encoder, no T5 encoder, no VAE in this file'
run 6 "no tokenizers" -m comfy-bf16/flux.safetensors "a cat"
said_like 'no tokenizers: single files have none; get tokenizer/vocab\.json'
run 2 "parts of a packed model" -m files.safetensors --vae bf16/ae.safetensors "a cat"
said_like 'is a packed model, which has all its parts'
run 0 "swapped" plan -m bf16/flux.safetensors --vae bf16/ae.safetensors --clip-l bf16/t5xxl.safetensors \
    --t5 bf16/clip_l.safetensors --tokenizer bf16
said_like 'clip_l\.safetensors is the CLIP text encoder: taken as --clip-l'
run 0 "inspect" inspect bf16/ae.safetensors
grep -q 'cannot run this: .* wanted a FLUX transformer for --model, found a VAE' out || fault "inspect: $(tail -1 out)"

finish
