#!/bin/bash
# dfx-edge bench, from outside. $DFX_EDGE is the program; run from the root of the repository. Rates are not judged here:
# that wants a quiet machine.
subcommand=(bench)
. tests/cli.sh

run 0 "help" --help
printed_like '^ +--queue-depth N'
run 2 "nothing"
said 'wanted "machine", "ops", "image" or "io"'
run 2 "another" gpu
said 'found gpu'
run 2 "no file" io
said 'found 0 words'
run 2 "depth" io --queue-depth 0 model.safetensors
said '--queue-depth'
run 6 "missing" io model.safetensors
said 'model.safetensors'
echo no model >model.safetensors
run 3 "not packed" io model.safetensors
rm model.safetensors

"$edge" random-model --like tiny -o model.safetensors >/dev/null 2>err || fault "no model: $(head -c 300 err)"
"$edge" bench io --runs 3 --queue-depth 2 model.safetensors >out 2>err </dev/null
name=io
case $? in
0)
    printed_like '^model\.safetensors: [0-9]+ pages, .*; 2 requests of 1\.0 MiB in flight$'
    printed_like '^bare io_uring +[0-9.]+ GB/s  \(median of 3, '
    printed_like '^page feed +[0-9.]+ GB/s  \(median of 3, '
    printed_like '^feed / bare +[0-9.]+  through io_uring, direct$'
    run 0 "JSON" io --runs 1 --json model.safetensors
    printed_like '^\{"path":"model\.safetensors",.*"bare_bytes_per_s":\[[0-9.e+]+\],"feed_bytes_per_s":\[[0-9.e+]+\],.*"ratio":'
    ;;
6) said 'needs io_uring and O_DIRECT' ;; # a container or a file system without them
*) fault "io: exit code: $(head -c 300 err)" ;;
esac

# machine: what it writes is a profile that plans are made with.
planned() {
    "$edge" plan --like flux-dev --device cpu --vram-budget 8G --gpu "$1" --json >plan 2>err ||
        fault "$name: plan --gpu $1: $(head -c 300 err)"
    grep -qE '"step_seconds":[0-9.e-]*[1-9]' plan || fault "$name: no seconds in the plan"
}
run 2 "machine: a word" machine model.safetensors
said '--disk'
run 2 "machine: an option of io" machine --queue-depth 8
said 'bench machine: there is no --queue-depth'
run 2 "io: an option of machine" io --disk . model.safetensors
said 'bench io: there is no --disk'
run 2 "machine: runs" machine --runs 0
said '--runs'
run 2 "machine: threads" machine --threads none
said '--threads'
run 6 "machine: no folder for the profile" machine -o none/a.profile
said 'none/a.profile'
run 6 "machine: no disk" machine --disk none -o a.profile
said 'none'
echo small >small
run 2 "machine: a small file" machine --disk small -o a.profile
said 'small: wanted a file of at least'
[ ! -e a.profile ] || fault "machine: a profile without measurements"

run 0 "machine" machine --device cpu --runs 1 --disk model.safetensors -o a.profile
printed_like '^disk +[0-9.]+ GB/s '
printed_like '^products, int8 +[0-9.e+]+ Gflop/s '
printed_like '^copies slow +[0-9.]+ % '
printed_like '^bf16  beside copies +[0-9.]+ +[0-9.]+ to [0-9.]+ +[-+][0-9.]+ %, the copies [0-9.]+ GB/s, [-+][0-9.]+ %$'
grep -qE '^link_slows_compute = [0-9.e-]+$' a.profile || fault "$name: no share of copies in the profile: $(head -c 300 a.profile)"
printed_like '^int8 +[0-9]+ \+ [0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+ to [0-9.]+ +[0-9.]+ +[0-9.]+$'
printed_like '^scenes, 256x256: the profile says [0-9.]+ s a step, measured [0-9.]+ s: ratio '
planned a.profile
# Without -o it goes where generate and plan look. A check that cannot be made is a fault, told after the measurements.
DFX_MODEL=$dir/none run 6 "machine: into the cache" machine --device cpu --runs 1 --threads 1 --disk model.safetensors --json
said "$dir/none"
[ "$(wc -l <out)" -eq 1 ] || fault "machine: JSON: $(wc -l <out) lines"
printed_like '"rates":\{"disk_bytes_per_s":\{"value":[0-9.e+]+,"values":\[[0-9.e+]+\]\}.*"link_slows_compute":\{"value":[0-9.e-]+,"values":null\}.*"blocks":\[\{"format":"bf16",.*"beside_copies":\{"median_seconds":[0-9.]+,"values":\[[0-9.]+\],"slower":[0-9.e-]+,.*"check":null\}'
profile=$(echo "$XDG_CACHE_HOME"/dfx-edge/machine-*-1-thread.profile)
said "profile: $profile"
planned "$profile"
chosen() { # the profile that a command speaks of
    name=$1
    shift
    "$edge" "$@" >out 2>err </dev/null || fault "$name: $(head -c 300 err)"
}
chosen "plan: the measured profile" plan --like tiny --device cpu --threads 1 -v
said "machine profile: $profile, measured on this device"
chosen "plan: of other threads" plan --like tiny --device cpu --threads 2 -v
said "machine profile: cpu, shipped"
chosen "plan: one that is named" plan --like tiny --device cpu --threads 1 --gpu h200 -v
grep -q "machine profile" err && fault "$name: another one was looked for"
picture() { # the same bits whatever the profile
    chosen "$1" --device cpu --threads 1 --steps 2 --seed 7 --vram-budget 37M -v "${@:3}" -o "$2" "a red ball"
}
picture "generate: measured" measured.png
said "machine profile: $profile, measured on this device"
picture "generate: named" named.png --profile h200
picture "generate: a file" file.png --profile a.profile
sed 's/^method = .*/method = 1/' "$profile" >edited && mv edited "$profile"
picture "generate: stale" stale.png
said "of another version of dfx-edge"
said "machine profile: cpu, shipped"
for other in named file stale; do
    cmp -s measured.png $other.png || fault "generate: the picture of $other.png is another one"
done
"$edge" --device cpu --profile none "a red ball" >out 2>err && fault "generate: a profile that is not there"
said 'no machine profile and no file "none"'

# ops: a line an op, at any size.
run 2 "ops: a word" ops linear
said '--only'
run 2 "ops: an option of machine" ops --disk .
said 'bench ops: there is no --disk'
run 2 "ops: no such op" ops --device cpu --like tiny --size 64x64 --runs 1 --only convolution
said 'no op'
run 0 "ops" ops --device cpu --like tiny --size 64x64 --runs 1 --quant fp8
printed_like '^tiny, fp8, 64x64, [0-9]+ text tokens; floor: profile '
printed_like '^ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +1  step attention 16x256, 2 heads, 80 keys$'
printed_like '^ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +3  step attention 80x256, 2 heads, 80 keys, to codes$'
printed_like 'step linear F8_E4M3 16x1024, K 256, bias, gelu, to codes$'
printed_like 't5 rmsnorm'
printed_like 'decode conv2d .*, upsampled$'
printed_like '^ +[0-9.]+ +[0-9.]+ +[0-9.]+     step, products$'
printed_like '^ +[0-9.]+ +[0-9.]+ +[0-9.]+     step, the rest$'
printed_like '^ +[0-9.]+ +[0-9.]+ +[0-9.]+     decode, convolutions$'
printed_like '^ +[0-9.]+ +[0-9.]+ +[0-9.]+     step$'
run 0 "ops: attention in 8 bits" ops --device cpu --like tiny --size 64x64 --runs 1 --only attention_codes --attention-bits 8
printed_like '^ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +3  step attention_codes 80x256, 2 heads, 80 keys$'
printed_like '     step, attention$'
run 2 "ops: attention in 4 bits" ops --device cpu --attention-bits 4
run 0 "ops: JSON" ops --device cpu --like tiny --size 64x64 --runs 2 --only "step attention" --json
[ "$(wc -l <out)" -eq 1 ] || fault "ops: JSON: $(wc -l <out) lines"
printed_like '"ops":\[\{"program":"step","op":"attention 80x256, 2 heads, 80 keys","kernel":"","same":3,"median_seconds":[0-9.e-]+,"values":\[[0-9.e-]+,[0-9.e-]+\]'

# image: a row a budget, and files of it.
image() { run "$1" "$2" image --device cpu --threads 2 --steps 2 --runs 2 "${@:3}"; }
image 2 "image: a budget" --vram-budget 38M,none
said 'wanted a size'
image 2 "image: a word" "a red ball"
said '--prompt'
image 6 "image: no earlier run" --compare none.json
said 'none.json'
image 4 "image: nothing fits" --vram-budget 2M,1M
said 'does not fit'
image 2 "image: formats" --quant int8,int4
said '--quant'
image 2 "image: sizes" --size 256x256,
said '--size'
image 2 "image: series" -m a -m b --quant int8,fp8,bf16 --size 64x64,128x64,192x64,256x64,320x64,384x64
said 'wanted at most 32 series of pictures, found 2 models in 3 formats at 6 sizes'
image 0 "image" --vram-budget 60M,1M,38M -o pictures
printed_like '^  60\.0 MiB +[0-9.]+ MiB '
printed_like '^   1\.0 MiB  does not fit$'
printed_like '^scenes, stored, 256x256, 2 steps, [0-9]+ text tokens; profile cpu.*, link [0-9.]+ GB/s$'
printed_like '^the picture is the same at every budget$'
[ "$(wc -l <pictures.csv)" -eq 4 ] || fault "image: $(wc -l <pictures.csv) lines of CSV"
[ "$(awk -F, '{ print NF }' pictures.csv | sort -u)" = 22 ] || fault "image: columns of CSV: $(awk -F, '{ print NF }' pictures.csv)"
grep -qE '^"scenes",stored,256,256,2,[0-9]+,16,62914560,yes,[0-9]+,[0-9.]+,' pictures.csv || fault "image: $(cat pictures.csv)"
grep -qE ',16,1048576,no,,' pictures.csv || fault "image: $(cat pictures.csv)"
awk -F, '$9 == "yes" && ($10 > $8 || $13 > $12 || $12 > $14 || $16 <= 0) { exit 1 }' pictures.csv || fault "image: $(cat pictures.csv)"
[ "$(awk -F, '$9 == "yes" { print $22 }' pictures.csv | sort -u | wc -l)" -eq 1 ] || fault "image: pictures differ"
grep -q '</svg>' pictures.svg || fault "image: no chart"
image 0 "image: compared" --vram-budget 60M,38M --compare pictures.json
printed_like '^against pictures\.json$'
printed_like '^verdict: '
image 2 "image: compared with another size" --size 128x128 --vram-budget 60M --compare pictures.json
said 'pictures.json: cannot be compared: width there is 256, here 128'
image 0 "image: formats and sizes" --quant int8,bf16 --size 128x64,64x128 --vram-budget 60M -o four
printed_like '^scenes, int8, 64x128, 2 steps, '
printed_like '^scenes, bf16, 128x64, 2 steps, '
[ "$(wc -l <four.csv)" -eq 5 ] || fault "image: formats and sizes: $(wc -l <four.csv) lines of CSV"
[ "$(awk -F, 'NR > 1 { print $2, $3 "x" $4, $9 }' four.csv | tr '\n' ';')" = "int8 128x64 yes;int8 64x128 yes;bf16 128x64 yes;bf16 64x128 yes;" ] ||
    fault "image: formats and sizes: $(cat four.csv)"
[ "$(grep -c '<g ' four.svg)" -eq 4 ] || fault "image: formats and sizes: charts"
image 0 "image: formats compared" --quant bf16,fp8 --size 128x64 --vram-budget 60M --compare four.json
printed_like '^scenes, bf16, 128x64$'
printed_like '^scenes, fp8, 128x64: not there before$'
# What was measured is told and written, though a later series cannot be.
"$edge" random-model -q --like tiny --quant int8 -o packed.safetensors >out 2>err || fault "no model: $(head -c 300 err)"
image 2 "image: a packed model" -m packed.safetensors --quant int8,fp8 --size 128x64 --vram-budget 60M -o part
said 'wanted fp8, but packed.safetensors is packed as int8 already'
printed_like ', int8, 128x64, 2 steps, '
[ "$(wc -l <part.csv)" -eq 2 ] || fault "$name: $(cat part.csv)"
image 0 "image: JSON" --json --compare pictures.json
[ "$(wc -l <out)" -eq 1 ] || fault "image: JSON: $(wc -l <out) lines"
printed_like '^\{"device":\{"name":.*"series":\[\{"model":"scenes","quant":"stored",.*"rows":\[\{"budget_bytes":[0-9]+,"fits":true,"cold_seconds":'
said 'not there before'

# The file that it writes to measure a folder has gone, whatever happens.
if [ "$(df --output=avail -B1 . | tail -n 1)" -gt $((2 << 30)) ]; then
    name="machine: interrupted"
    mkdir folder
    timeout --preserve-status -s TERM 1 "$edge" bench machine --device cpu --runs 99 --disk folder -o folder/d.profile >out 2>err
    got=$?
    [ $got -eq 130 ] || fault "$name: exit code $got: $(head -c 300 err)"
    [ -z "$(ls -A folder)" ] || fault "$name: left $(ls -A folder)"
fi

finish
