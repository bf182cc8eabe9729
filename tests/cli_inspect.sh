#!/bin/bash
# dfx-edge inspect, from outside. $DFX_EDGE is the program; run from the root of the repository.
subcommand=(inspect)
. tests/cli.sh
golden=$root/tests/golden/lora
gguf=$root/tests/golden/types.gguf

# st FILE HEADER DATA_BYTES: a safetensors file; the header is at most 255 bytes.
st() {
    printf "\\x$(printf %02x ${#2})\0\0\0\0\0\0\0%s" "$2" >"$1"
    head -c "$3" /dev/zero >>"$1"
}

# The bundled model: its parts (figures of models/scenes as trained) and the verdict.
run 0 "model" "$model"
printed_like 'FluxPipeline'
printed_like 'transformer +FluxTransformer2DModel +2 files .* 122 tensors +8\.1 M +BF16'
printed_like 'text_encoder_2 +T5EncoderModel .* 402\.5 k +BF16'
printed_like 'scheduler +FlowMatchEulerDiscreteScheduler +1 file '
printed_like '^dfx-edge can run this: FLUX.1 schnell'
[ ! -s err ] || fault "model: said $(cat err)"
run 0 "model, listed" -v "$model"
printed_like 'BF16 +\[.*\]  transformer_blocks\.0\.attn\.add_q_proj\.weight'
run 0 "model, JSON" --json "$model"
[ "$(wc -l <out)" -eq 1 ] || fault "JSON: $(wc -l <out) lines"
printed_like '"runs":true'
printed_like '"parameters":8105024'
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; d = json.load(sys.stdin); assert len(d["components"]) == 7' <out || fault "not the JSON that is documented"
fi

# Its parts alone: kinds are told by names of tensors.
run 0 "transformer" "$model/transformer"
printed_like 'looks like: FLUX transformer \(diffusers names, no guidance embedding: schnell\)'
printed_like 'cannot run this alone'
run 0 "vae" "$model/vae/diffusion_pytorch_model.safetensors"
printed_like 'looks like: VAE \(diffusers names\)'
printed_like ' decoder$'
cp "$model/text_encoder_2/model.safetensors" clip.safetensors
run 0 "a misleading file name" clip.safetensors
printed_like 'looks like: T5 encoder'
run 0 "clip" "$model/text_encoder"
printed_like 'looks like: CLIP text encoder'

# Hand-made files.
st lora.safetensors '{"__metadata__":{"who":"me"},"transformer.x_embedder.lora_A.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}' 8
run 3 "half a LoRA" lora.safetensors
said 'x_embedder.lora_A.weight stands alone'
printed_like 'looks like: LoRA'
printed_like 'metadata who: me'
printed_like '^1 tensor'
printed_like 'F32 +1 tensor'
printed_like '^dfx-edge cannot apply this: .* stands alone'
st lora.safetensors '{"img_in.lora_A.weight":{"dtype":"F32","shape":[1,64],"data_offsets":[0,256]},"img_in.lora_B.weight":{"dtype":"F32","shape":[3072,1],"data_offsets":[256,12544]}}' 12544
run 0 "a LoRA of zeros" lora.safetensors
printed_like 'LoRA: BFL names, for FLUX.1 dev'
printed_like '1 of 1 modules match'
printed_like 'zero, and left out: 1 layers'
st lora.safetensors '{"a.lora_A.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"a.lora_B.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]}}' 16
run 3 "a LoRA of which nothing matches" lora.safetensors
said '0 of 1 modules match this model'
printed_like '0 of 1 modules match'
printed_like 'no layer of this model: a$'
printed_like '^dfx-edge cannot apply this: '
run 3 "the same, JSON" --json lora.safetensors
printed_like '"matched":0.*"unmatched_names":\["a"\]'

# LoRA files that diffusers made (tests/golden/lora), for the bundled model, which has their width.
run 0 "LoRA of PEFT" -m "$model" "$golden/peft.safetensors"
printed_like 'LoRA: PEFT \(diffusers names\), for FLUX.1 schnell'
printed_like '34 of 34 modules match'
printed_like 'ranks 4 to 4, alpha 4 to 4, scale 1 to 1$'
printed_like ' 34 layers of transformer'
printed_like '^a LoRA for FLUX.1 schnell: 34 of 34 modules match, 34 layers are changed'
run 0 "LoRA of kohya, listed" -v -m "$model" "$golden/kohya_dense.safetensors"
printed_like 'LoRA: kohya'
printed_like 'ranks 4 to 4, alpha 2 to 2, scale 0.5 to 0.5$'
printed_like 'rank +4  scale 0.5 +transformer_blocks.1.attn.add_v_proj'
run 0 "LoRA, JSON" --json -v -m "$model" "$golden/kohya_blockdiag.safetensors"
printed_like '"form":"lora"'
printed_like '"layer":"single_transformer_blocks.0.proj_mlp","module":"lora_unet_single_blocks_0_linear1","out":1024,"in":256,"rank":4'
run 3 "LoRA for another width" "$golden/peft.safetensors"
said 'wanted 3072 columns (in features)'
run 2 "-m for what is no LoRA" -m "$model" "$model/transformer"
st bfl.safetensors '{"double_blocks.0.img_attn.qkv.weight":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"double_blocks.0.img_mod.lin.weight":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}}' 2
run 0 "BFL names" bfl.safetensors
printed_like 'looks like: FLUX transformer \(BFL names'
st other.safetensors '{"a":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}' 6
run 0 "unknown" other.safetensors
printed_like 'looks like: unknown'
st t5.safetensors '{"enc.blk.0.attn_q.weight":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"enc.blk.0.attn_rel_b.weight":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}}' 2
run 0 "llama.cpp's names" t5.safetensors
printed_like 'looks like: T5 encoder \(llama.cpp names\)'
st none.safetensors '{}' 0
run 0 "no tensors" none.safetensors
printed_like '^0 tensors'
st hostile.safetensors '{"a\u001b[2Jb":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}' 6
run 0 "control bytes in a name" -v hostile.safetensors
grep -q $'\x1b' out && fault "a name steers the terminal"

# GGUF, whatever its name says. Sizes: 39 blocks of 34 bytes, 9 of 144.
run 0 "GGUF" -v "$gguf"
printed_like 'types.gguf: GGUF$'
printed_like '^16 tensors'
printed_like 'metadata general.architecture: flux'
printed_like 'Q8_0 +1 tensors +1\.2 k parameters +1\.3 KiB'
printed_like 'Q4_K +1 tensors +2\.3 k parameters +1\.3 KiB'
printed_like 'Q4_K +\[9, 256\]  block\.Q4_K\.weight'
cp "$gguf" renamed.safetensors
run 0 "GGUF named safetensors" renamed.safetensors
printed_like 'renamed.safetensors: GGUF$'
mkdir unet && cp "$gguf" unet/any.gguf
run 0 "GGUF in a folder" unet
printed_like '^16 tensors'
cp other.safetensors renamed.gguf
run 0 "safetensors named GGUF" renamed.gguf
printed_like 'renamed.gguf: safetensors$'
head -c -100 "$gguf" >short.gguf
run 3 "short GGUF" short.gguf
said 'bytes short'

# Broken and missing things.
st short.safetensors '{"a":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}' 5
run 3 "short file" short.safetensors
said short.safetensors
[ ! -s out ] || fault "short file: printed $(cat out)"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >pointer.safetensors
run 3 "Git LFS pointer" pointer.safetensors
said LFS
run 6 "missing file" none-there.safetensors
mkfifo pipe
run 3 "pipe" pipe
mkdir empty
run 3 "empty folder" empty
said model_index.json

cp -r "$model" broken && chmod -R u+w broken
truncate -s -1 broken/vae/diffusion_pytorch_model.safetensors
run 3 "broken component" broken
printed_like 'vae +AutoencoderKL +cannot be read'
printed_like 'transformer +FluxTransformer2DModel +2 files'
printed_like '^dfx-edge cannot run this: '
rm -r broken/vae
run 6 "missing component" broken
printed_like 'vae +AutoencoderKL +cannot be read'
mkdir evil
printf '{"_class_name":"FluxPipeline","../../etc":["a","b"]}' >evil/model_index.json
run 3 "component outside the folder" evil
said '../../etc'
rm -r broken && cp -r "$model" broken && chmod -R u+w broken
rm broken/transformer/*.safetensors
run 0 "readable, but weights are missing" broken
printed_like '^dfx-edge cannot run this: '

# The command line.
run 2 "no path"
run 2 "two paths" a b
run 2 "unknown option" --jsno "$model"
said '--json'

finish
