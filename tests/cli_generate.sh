#!/bin/bash
# dfx-edge generate, from outside: exit codes, messages, names of files, what is left after a failure. Uses the bundled
# model at small sizes. $DFX_EDGE is the program; run from the root of the repository.
. tests/cli.sh
cpu=(--device cpu) # the same bytes and about the same seconds wherever this runs
small=("${cpu[@]}" --size 64x64 --steps 1)

# refused NAME WORDS MESSAGE...: a usage error of one line, found before any model is opened.
refused() {
    local words=$2 case_name=$1
    shift 2
    run 2 "$case_name" -m /no/such/model $words "a cat"
    [ "$(wc -l <err)" -eq 1 ] || fault "$case_name: $(wc -l <err) lines instead of one"
    local message
    for message in "$@"; do said "$message"; done
}
# Big-endian width and height, bit depth and colour type of a PNG.
png_head() { od -An -tu1 -j16 -N10 "$1" | awk '{print $3 * 256 + $4 "x" $7 * 256 + $8, $9, $10}'; }

# Help and version: standard output, exit code 0, whatever else is wrong.
for words in --help -h help "generate --help" "inspect --help" "help inspect" "--steps 4x --nonsense --help" --version "--version --size 1"; do
    run 0 "help: $words" $words
    [ -s out ] && [ ! -s err ] || fault "$words: wanted text on standard output only"
    awk 'length($0) > 100 {exit 1}' out || fault "$words: a line is longer than 100 columns"
done
run 0 "generate help" generate --help
for words in --model --output --size --width --height --steps --guidance --text-length --seed --count --prompt-file \
    --trace --device --threads --vram-budget --json --quiet --verbose "multiple of 16" "2^30" "10^9" "130" "low 32 bits"; do
    printed "$words"
done
run 2 "nothing typed"
said Usage
run 2 "help of nothing" help nonsense

# Numbers (J09, E05, E07, E10, E11): strict, refused with the option and its range.
for value in 0 -1 2.5 4x "" 1e9 99999999999999999999 1001; do refused "steps $value" "--steps=$value" --steps "from 1 to 1000"; done
for value in 1e3 0 15 16385 512px; do refused "width $value" "--width $value" --width "from 16 to 16384"; done
run 2 "width ' 512'" --width " 512" x; said "from 16 to 16384"
for value in 1000000x16 2147483648x16 4294967312x16 512 512x 0x0; do refused "size $value" "--size $value" --size "from 16 to 16384"; done
refused "size 16384x16384" "--size 16384x16384" --size "at most 16777216 pixels"
refused "width and height" "--width 4112 --height 4112" "at most 16777216 pixels"
for value in 3,5 nan inf -1 0x1p3 1e3 1001; do refused "guidance $value" "--guidance $value" --guidance "from 0 to 1000"; done
LC_ALL=de_DE.UTF-8 "$edge" -m /no/such/model --guidance 3,5 x 2>err; [ $? -eq 2 ] || fault "3,5 in a German locale: $(cat err)"
LC_ALL=de_DE.UTF-8 "$edge" -m /no/such/model --guidance 3.5 x 2>err; [ $? -eq 6 ] || fault "3.5 in a German locale: $(cat err)"
for value in 18446744073709551616 -2 0x10 1e3 abc; do refused "seed $value" "--seed $value" --seed "18446744073709551615"; done
refused "last seed of a batch" "--seed 18446744073709551615 -n 2" --seed
for value in 0 -1 1e99 12 4X 1023K; do refused "budget $value" "--vram-budget $value" --vram-budget 12G 12GB; done
for value in 0 257 -1; do refused "threads $value" "--threads $value" --threads "from 1 to 256"; done
for value in 0 1001; do refused "count $value" "-n $value" --count "from 1 to 1000"; done
for value in gpu cuda:x cuda: cuda:-1 cuda:64 cpu:0 auto:1 CUDA; do
    refused "device $value" "--device $value" --device "auto, cpu, cuda, or cuda:N with N from 0 to 63"
done
refused "text length" "--text-length 0" --text-length

# Options and prompts on the command line (J08).
refused "unknown option" "--stepz 4" "did you mean --steps?"
run 2 "missing value" x --steps; said "--steps"
refused "quiet and verbose" "-q -v" "wanted one of them"
run 2 "several words" a red ball; said "quote it"
refused "prompt twice" "-p dog" "given 2 times"
refused "prompt and file" "--prompt-file /dev/null" "given 2 times"
run 2 "prompt file and option" -p dog --prompt-file /dev/null; said "given 2 times"
run 6 "prompt file missing" --prompt-file none; said none
head -c 1048577 /dev/zero | tr '\0' a >long; run 2 "prompt too long" --prompt-file long; said 1048576
printf 'a\0b' >zero; run 2 "prompt with a zero byte" --prompt-file zero; said "zero byte"

# Names (J01): refused before the model is opened.
for value in x.jpg x.png.txt x. cat_1.5; do refused "output $value" "-o $value" --output ".png"; done
refused "output too long" "-o $(head -c 5000 /dev/zero | tr '\0' a).png" --output "too long"
refused "output name too long" "-o $(head -c 250 /dev/zero | tr '\0' a).png" --output "too long"
mkdir folder folder.png
for value in folder folder/ folder.png . folder/..; do refused "output $value" "-o $value"; done
run 6 "output folder missing" -m /no/such/model -o nosuchdir/x.png x; said nosuchdir
refused "standard output for two" "-o - -n 2" "one picture"
refused "standard output for two things" "-o - --json" "standard output"
if [ "$(id -u)" -ne 0 ]; then
    mkdir sealed && chmod a-w sealed
    run 6 "output folder sealed" -m /no/such/model -o sealed/x.png x; said sealed
fi
rmdir folder folder.png
run 6 "model missing" -m /no/such/model x; said /no/such/model
ls | grep -qi png && fault "a failure left a picture: $(ls)"

# The same picture by every way to say its prompt (J08).
prompt="a red ball on a green hill"
run 0 "word" "${small[@]}" --seed 7 -o word.png "$prompt"
is_file word.png
[ "$(png_head word.png)" = "64x64 8 2" ] || fault "word.png: $(png_head word.png)"
printf '\xef\xbb\xbf%s\r\n' "$prompt" >bom.txt
run 0 "file" "${small[@]}" --seed 7 -o file --prompt-file bom.txt
is_file file.png
same word.png file.png
run 0 "-p" "${small[@]}" --seed 7 -o option.PNG -p "$prompt"
same word.png option.PNG
"$edge" -q "${small[@]}" --seed 7 -o - --prompt-file - <bom.txt >stdout.png 2>err || fault "standard input: $(cat err)"
name="standard streams"
same word.png stdout.png
[ ! -s err ] || fault "--quiet said: $(cat err)"
run 0 "prompt that starts with a dash" "${small[@]}" --seed 7 -o dash.png --prompt="-- no"
run 0 "dash after --" "${small[@]}" --seed 7 -o dash2.png -- "-- no"
same dash.png dash2.png
differ dash.png word.png
run 0 "empty prompt" "${small[@]}" --seed 7 -o empty.png -p ""
run 0 "empty file" "${small[@]}" --seed 7 -o empty2.png --prompt-file /dev/null
same empty.png empty2.png

# Texts and names that break things (J01, J07).
run 0 "UTF-8 prompt" "${small[@]}" --seed 7 -o "a 'b' \"é\" %s%n%d.png" $'テスト é \U1F98A\nline'
is_file "a 'b' \"é\" %s%n%d.png"
grep -qaF iTXt "a 'b' \"é\" %s%n%d.png" || fault "UTF-8 prompt: no iTXt chunk"
grep -qaF 'テスト é' "a 'b' \"é\" %s%n%d.png" || fault "UTF-8 prompt: not in the PNG"

# Sizes (E01, E04): rounded down with a warning; the file agrees.
run 0 "size not a multiple" "${cpu[@]}" --steps 1 --size 72x79 --seed 7 -o odd.png x
said warning
[ "$(png_head odd.png)" = "64x64 8 2" ] || fault "72x79 gave $(png_head odd.png)"
for size in 16x16 16x256; do
    run 0 "size $size" "${cpu[@]}" --steps 1 --size $size --seed 7 -o s.png x
    [ "$(png_head s.png)" = "$size 8 2" ] || fault "$size gave $(png_head s.png)"
done

# Guidance is ignored by a model without it, and said once (E10).
run 0 "guidance 0" "${small[@]}" --seed 7 -o g0.png --guidance 0 -n 1 "$prompt"
said "--guidance is ignored"
same g0.png word.png

# Options given twice: the last counts, with a warning.
run 0 "seed twice" "${small[@]}" --seed 1 --seed 7 -o twice.png "$prompt"
said "warning: --seed: given 2 times"
same twice.png word.png

# Batches (E12, E13): seed + i, alone or together; each file has its own seed.
run 0 "batch" "${small[@]}" --seed 7 -n 2 -o batch.png --json "$prompt"
same batch-7.png word.png
for seed in 7 8; do
    LC_ALL=C grep -qaE "[Ss]eed[\": ]+$seed[,}]" batch-$seed.png || fault "batch-$seed.png does not hold its seed"
done
run 0 "alone" "${small[@]}" --seed 8 -o eight.png "$prompt"
same batch-8.png eight.png
differ batch-7.png batch-8.png
run 0 "no metadata" "${small[@]}" --no-metadata -o plain.png "$prompt"
grep -aq Steps: plain.png && fault "--no-metadata: the PNG still carries the parameters"
run 0 "metadata" "${small[@]}" -o worded.png "$prompt"
grep -aq Steps: worded.png || fault "the PNG does not carry the parameters"
run 0 "json" "${small[@]}" --seed 9007199254740993 -n 2 --json "$prompt"
[ "$(wc -l <out)" -eq 2 ] || fault "--json: $(wc -l <out) lines for two pictures"
for words in '"seed": 9007199254740993' '"seed": 9007199254740994' '"output": "dfx-9007199254740993.png"' '"denoise"' \
    '"width": 64' '"peak_device_bytes"' '"peak_host_bytes"' '"parameters": {'; do printed "$words"; done
is_file dfx-9007199254740994.png
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' <out || fault "--json: not JSON"
fi

# A timeline: of the whole run, PNG included; a name that will not do is told before anything is packed or computed.
run 0 "trace" "${small[@]}" --seed 7 -v --trace run.json -o traced.png "$prompt"
same traced.png word.png
said "computing; waiting"
for words in traceEvents '"prepare"' '"step 1"' '"png"' '"step/transformer_blocks.0/ff"' '"bytes"'; do
    grep -q "$words" run.json || fault "--trace: no $words in the file"
done
if command -v python3 >/dev/null; then
    python3 -c 'import json; json.load(open("run.json"))' || fault "--trace: not JSON"
fi
run 6 "trace without a folder" "${small[@]}" --trace none/run.json -o untraced.png "$prompt"
said "none/run.json: cannot create"
[ ! -e untraced.png ] || fault "--trace to nowhere: wrote a picture"
refused "trace to standard output" "--trace -" --trace "name of a file"

# A drawn seed is said and is in the name (E11).
for words in "" "--seed -1"; do
    run 0 "drawn seed $words" "${small[@]}" $words "$prompt"
    is_file "dfx-$(sed -n 's/^seed //p' err).png"
done

# Progress off a terminal is plain lines, and -v tells the stages.
run 0 "progress" "${small[@]}" --seed 7 -v -o p.png x
said denoise
said decode
grep -q $'\r' err && fault "progress: \\r although this is no terminal"
grep -q $'\x1b' err && fault "progress: escape sequences"
grep -qE '^p.png  64x64  1 step  [0-9.]+ s$' err || fault "no last line: $(tail -n 1 err)"

# Failures in the middle (J02, H08): the exit code says so and nothing half is left.
mkdir limited
(cd limited && ulimit -f 1 && "$edge" -q "${cpu[@]}" --size 128x128 --steps 1 --seed 7 -o x.png "$prompt" >/dev/null 2>../err)
[ $? -eq 6 ] || fault "file size limit: $(cat err)"
[ -z "$(ls -A limited)" ] || fault "file size limit left $(ls -A limited)"
if [ -w /dev/full ]; then
    "$edge" "${small[@]}" --seed 7 -o - x >/dev/full 2>err
    [ $? -eq 6 ] || fault "-o - to a full disk: $(cat err)"
    "$edge" --help >/dev/full 2>err
    [ $? -eq 6 ] || fault "--help to a full disk: $(cat err)"
fi

# Two at once with one name: each leaves a whole picture, and nothing else stays (J10).
mkdir race
"$edge" -q "${small[@]}" --seed 7 -o race/x.png "$prompt" & first=$!
"$edge" -q "${small[@]}" --seed 7 -o race/x.png "$prompt" || fault "race: second failed"
wait $first || fault "race: first failed"
name=race
same race/x.png word.png
[ "$(ls -A race)" = x.png ] || fault "race left $(ls -A race)"

# Signals (J05). Job control, so that the shell does not start the program with SIGINT ignored.
set -m
mkdir stopped
# stop NAME SIGNALS...: a run too long to end by itself, signalled when it has begun to compute.
stop() {
    name="signal $*"
    rm -f err # of the run before: it tells of a beginning that is not this run's
    "$edge" "${cpu[@]}" -o stopped/x.png --steps 1000 --seed 7 "$prompt" >out 2>err &
    local job=$! begun=$SECONDS
    until grep -q text err; do
        kill -0 $job 2>/dev/null && [ $((SECONDS - begun)) -lt 120 ] || break
        sleep 0.05
    done
    local signal
    for signal in "$@"; do kill -"$signal" $job; done
    begun=$(date +%s%N)
    { wait $job; } 2>/dev/null
    local got=$? took=$((($(date +%s%N) - begun) / 1000000))
    [ $got -eq 130 ] || fault "$name: exit code $got instead of 130"
    [ $took -lt 1000 ] || fault "$name: took $took ms"
    [ -z "$(ls -A stopped)" ] || fault "$name: left $(ls -A stopped)"
}
stop INT
said interrupted
stop TERM
stop HUP
stop INT INT
# A batch tells what it had written.
"$edge" "${cpu[@]}" -o stopped/x.png --size 64x64 --steps 2 -n 1000 --seed 7 "$prompt" >out 2>err &
job=$! begun=$SECONDS
until [ -e stopped/x-7.png ] || [ $((SECONDS - begun)) -gt 300 ] || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
kill -INT $job
{ wait $job; } 2>/dev/null
[ $? -eq 130 ] || fault "interrupted batch: wrong exit code"
name="interrupted batch"
said "written before the failure (1 of 1000): stopped/x-7.png"

# Without --model: $DFX_MODEL, else the bundled model, else one sentence with the places.
cd "$root" || exit 1
env -u DFX_MODEL "$edge" -q "${small[@]}" --seed 7 -o "$dir/bundled.png" "$prompt" || fault "bundled model not found"
cd "$dir" || exit 1
name="bundled model"
same bundled.png word.png
DFX_MODEL=/no/such/model "$edge" x >out 2>err
[ $? -ne 0 ] && grep -qF /no/such/model err || fault "\$DFX_MODEL is not used"

finish
