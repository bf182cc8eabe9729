#!/bin/bash
# dfx-edge pack, random-model, and inspect of what they write, from outside. $DFX_EDGE is the program; run from the root of
# the repository. With python3 and the safetensors package (installed into a temporary venv where that works) the file
# is read by other software too; without it that part is left out, and said to be.
. tests/cli.sh
reader=$root/tests/py_packed.py

entries() { [ "$(ls -A "$1" | wc -l)" -eq "$2" ] || fault "$name: in $1: $(ls -A "$1" | tr '\n' ' ')"; }

# What is written is what was promised.
run 0 "dry run" pack "$model" --dry-run --json -o dry.safetensors
[ ! -e dry.safetensors ] || fault "dry run: wrote a file"
printed_like '"quantized":53,'
promised=$(grep -o '"file_bytes":[0-9]*' out | cut -d: -f2)
run 0 "default name" pack "$model"
said_like '^scenes-int8\.safetensors .* 53 of 359 tensors in int8'
[ "$(stat -c %s scenes-int8.safetensors)" = "$promised" ] || fault "default name: promised $promised bytes"
run 0 "again, over it" pack "$model" -o scenes-int8.safetensors --threads 1 -q
[ ! -s err ] || fault "quiet: said $(cat err)"
run 0 "compressed bf16" pack "$model/" --quant bf16 --compress -o lz4.safetensors
run 0 "fp8" pack "$model" --quant fp8 -o fp8.safetensors
run 0 "auto" pack "$model" --quant auto -o auto.safetensors --threads 2
cmp -s auto.safetensors scenes-int8.safetensors || fault "auto: not the bytes of int8"
run 0 "keep" pack "$model" --keep 'text_encoder_2.*,*.to_q.weight' -o keep.safetensors
said_like ' 34 of 359 tensors in int8' # 53 less 14 of T5, less 2 + 3

# inspect
run 2 "generate: packed in another format" generate --device cpu -m scenes-int8.safetensors --quant fp8 -o no.png "a red ball"
said "wanted fp8, but scenes-int8.safetensors is packed as int8 already"
[ ! -e no.png ] || fault "generate: packed in another format: a picture"
run 0 "inspect" inspect scenes-int8.safetensors
printed_like 'packed model, int8, from .*models/scenes'
printed_like '^50 pages of .* the largest of '
printed_like '^saved: .* of the source.s 18\.7 MiB'
run 0 "inspect -v" inspect -v lz4.safetensors
printed_like '^compressed: 46 pages; .* \([0-9.]+ % less\)'
printed_like 'lz4-planes +step/transformer_blocks\.0/attn$'
printed_like 'raw +BF16 +t5_table/shared$'
run 0 "inspect --error" inspect --error --source "$model" scenes-int8.safetensors
printed_like ' [0-9.]+ % +[34][0-9]\.[0-9] dB +2 .* transformer\.transformer_blocks\.\*\.attn\.to_q$'
printed_like ' 53 +[0-9]+ +all$'
run 0 "inspect --json" inspect --json --error --source "$model" fp8.safetensors
printed_like '"form":"packed"'
printed_like '"quant":"fp8"'
run 6 "error against another folder" inspect --error --source "$dir" scenes-int8.safetensors
run 0 "random folder" random-model --like scenes -o scenes2 -q
run 0 "error against other weights" inspect --json --error --source scenes2 scenes-int8.safetensors
printed_like '"relative":1\.[0-9]+'
run 0 "random folder" random-model --like tiny -o tiny -q
run 3 "error against another architecture" inspect --error --source tiny scenes-int8.safetensors
run 2 "error without source" inspect --error scenes-int8.safetensors
run 2 "error of a folder" inspect --error --source "$model" "$model"

# Mistakes, before any work.
run 2 "no folder" pack
run 2 "two folders" pack "$model" "$model"
run 2 "bad format" pack "$model" --quant int4
said_like 'wanted int8, fp8, int8wo, bf16, f32, stored or auto, found "int4"'
run 2 "bad name" pack "$model" -o model.bin
run 2 "empty pattern" pack "$model" --keep 'a,,b'
run 6 "no such folder" pack nothing -o x.safetensors
run 6 "no such target" pack "$model" -o nothing/x.safetensors
run 3 "a file" pack scenes-int8.safetensors -o x.safetensors
run 0 "help" pack --help
run 0 "help random-model" random-model --help

# Onto its own source.
cp -r "$model" copy
before=$(cd copy && find . -type f -exec cksum {} + | sort)
run 2 "own source" pack copy -o copy/vae/diffusion_pytorch_model.safetensors
said_like 'would be lost'
[ "$before" = "$(cd copy && find . -type f -exec cksum {} + | sort)" ] || fault "own source: it changed"

# A full disk, a kill, an interrupt: nothing stays, and the next pack succeeds.
mkdir -p full
name="full disk"
(ulimit -f 2000; "$edge" pack "$model" -o full/x.safetensors >out 2>err)
[ $? -eq 6 ] || fault "full disk: exit code instead of 6"
said_like 'cannot write'
entries full 0
mkdir killed
signals="KILL INT"
if [ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -lt $((21 << 20)) ]; then # 20.5 GB, of which little is written
    echo "cli_pack: stopped by a signal: not run, there are no 21 GiB free here"
    signals=
fi
for signal in $signals; do
    name="stopped by $signal"
    "$edge" random-model --like flux-dev --threads 1 -o killed/x.safetensors >out 2>err &
    job=$!
    sleep 0.5
    kill -$signal $job
    wait $job 2>/dev/null
    got=$?
    [ $got -eq $([ $signal = KILL ] && echo 137 || echo 130) ] || fault "$name: exit code $got"
    [ ! -e killed/x.safetensors ] || fault "$name: left a model"
    for left in killed/.[!.]*; do # where the file system cannot hide a file
        if [ -e "$left" ] && "$edge" inspect "$left" >/dev/null 2>&1; then
            fault "$name: $left looks like a model"
        fi
    done
done
[ -z "$signals" ] || said_like 'interrupted'
rm -rf killed
run 0 "after that" pack tiny -o tiny-packed.safetensors -q

# Random models: the same seed is the same model, on either way; another is another.
run 0 "random file" random-model --like tiny -o direct.safetensors -q
sums() { "$edge" inspect --json "$1" | grep -o '"xxh3":"[0-9a-f]*"'; }
[ "$(sums direct.safetensors)" = "$(sums tiny-packed.safetensors)" ] || fault "random file: other pages than the folder, packed"
[ "$(sums direct.safetensors | wc -l)" -eq 47 ] || fault "random file: $(sums direct.safetensors | wc -l) pages"
run 0 "another seed" random-model --like tiny -o other.safetensors --seed 1 -q
[ "$(sums direct.safetensors)" != "$(sums other.safetensors)" ] || fault "another seed: the same pages"
run 0 "random model runs" -m tiny --device cpu --seed 3 -o picture.png -q "a cat"
[ "$(head -c 4 picture.png | tail -c 3)" = PNG ] || fault "random model runs: no picture"
run 2 "folder that is there" random-model --like tiny -o tiny
run 2 "folder in int8" random-model --like tiny -o tiny2 --quant int8
run 2 "unknown architecture" random-model --like sd15 -o x.safetensors

# Other software.
python=
if command -v python3 >/dev/null; then
    if python3 "$reader" --have 2>/dev/null; then
        python=python3
    elif python3 -m venv venv >/dev/null 2>&1 && venv/bin/pip install -q safetensors numpy xxhash >/dev/null 2>&1; then
        python=venv/bin/python
    fi
fi
if [ -n "$python" ]; then
    for file in scenes-int8 lz4 keep; do
        $python "$reader" $file.safetensors "$model" >out 2>&1 || fault "safetensors package, $file: $(head -c 300 out)"
    done
    $python "$reader" direct.safetensors tiny >out 2>&1 || fault "safetensors package, direct: $(head -c 300 out)"
else
    echo "cli_pack: no safetensors package for python3: the file was not read by other software"
fi

finish
