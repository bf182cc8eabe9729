#!/usr/bin/env bash
# Single files from outside: what random-model writes in every layout draws the picture of the folder, or of the same numbers.
# $DFX_EDGE is the program; run from the root of the tree.
set -u
edge=$(realpath "$DFX_EDGE")
work=$(mktemp -d "${TMPDIR:-/tmp}/dfx-single-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/cache
mkdir cache

fault() {
    echo "cli_single: $*"
    cat err 2>/dev/null
    exit 1
}

# run CODE NAME ARGUMENTS...: the exit code is CODE. Output in the files out and err.
run() {
    local code=$1 name=$2 got
    shift 2
    "$edge" "$@" >out 2>err
    got=$?
    [ $got -eq "$code" ] || fault "$name: exit code $got instead of $code"
}

said() {
    grep -Eq -- "$1" err || fault "not said: $1"
}

# draw NAME MODEL...: NAME.png
draw() {
    local name=$1
    shift
    run 0 "$name" --device cpu --size 64x64 --steps 2 --text-length 16 --seed 3 --no-metadata -o "$name.png" "$@" "a cat"
}

same() {
    cmp -s "$1.png" "$2.png" || fault "$1 and $2 are different pictures"
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
said 'bf16/flux\.safetensors: FLUX\.1 dev, told by its guidance embedding \(original names, BF16\)'
same bf16 folder
draw comfy-bf16 -m comfy-bf16/flux.safetensors --tokenizer comfy-bf16
same comfy-bf16 folder
draw fp8 $(parts fp8 flux.safetensors t5xxl.safetensors)
draw fp8-scaled $(parts fp8-scaled flux.safetensors t5xxl.safetensors)
draw comfy-fp8-scaled -m comfy-fp8-scaled/flux.safetensors --tokenizer comfy-fp8-scaled
same comfy-fp8-scaled fp8-scaled
draw gguf $(parts gguf-q8_0 flux.gguf t5xxl.gguf)
cmp -s gguf.png folder.png && fault "Q8_0 changes nothing"
draw parts-of-a-folder -m folder --t5 bf16/t5xxl.safetensors
same parts-of-a-folder folder

# Packed once, and the second time not.
draw again $(parts bf16 flux.safetensors t5xxl.safetensors)
grep -q packing err && fault "packed again"
same again folder

# What pack makes of files draws the same; a format that was asked for is the same from wherever.
run 0 "pack" pack bf16/flux.safetensors --vae bf16/ae.safetensors --clip-l bf16/clip_l.safetensors \
    --t5 bf16/t5xxl.safetensors --tokenizer bf16 --quant int8 -o files.safetensors
run 0 "pack folder" pack folder --quant int8 -o from-folder.safetensors
draw files -m files.safetensors
draw from-folder -m from-folder.safetensors
same files from-folder
run 0 "default name" pack comfy-bf16/flux.safetensors --tokenizer comfy-bf16 --dry-run
said '^flux-int8\.safetensors '

# Said before anything is read.
run 3 "transformer alone" -m bf16/flux.safetensors "a cat"
said 'no CLIP text encoder, no T5 encoder, no VAE in this file'
run 6 "no tokenizers" -m comfy-bf16/flux.safetensors "a cat"
said 'no tokenizers: single files have none; get tokenizer/vocab\.json'
run 2 "parts of a packed model" -m files.safetensors --vae bf16/ae.safetensors "a cat"
said 'is a packed model, which has all its parts'
run 0 "swapped" plan -m bf16/flux.safetensors --vae bf16/ae.safetensors --clip-l bf16/t5xxl.safetensors \
    --t5 bf16/clip_l.safetensors --tokenizer bf16
said 'clip_l\.safetensors is the CLIP text encoder: taken as --clip-l'
run 0 "inspect" inspect bf16/ae.safetensors
grep -q 'cannot run this: .* wanted a FLUX transformer for --model, found a VAE' out || fault "inspect: $(tail -1 out)"
echo "cli_single: ok"
