#!/bin/bash
# dfx-edge --batch-file, from outside: what is refused before the first picture, defaults, failures between pictures, LoRAs. Uses the
# bundled model at small sizes. $DFX_EDGE is the program; run from the root of the repository.
. tests/cli.sh
small=(--device cpu --steps 2 --text-length 8)

no_pictures() { ! ls ./*.png >/dev/null 2>&1 || fault "$name: there are pictures: $(ls ./*.png)"; }

# Before the model is opened: every fault of every line, and nothing is made.
run 2 "faults" -m /no/such/model --batch-file - <<'LINES'
good --seed 1
# a comment
bad --steps 0
bad --nonsense
"never ends
LINES
said "standard input:5: found a quote that does not end"; lines 1
run 2 "more faults" -m /no/such/model --batch-file - <<'LINES'
good --seed 1
bad --steps 0

--seed 4
bad --stepz 4
bad -o -
bad --json
bad --lora a.safetensors:x
good -p bad
LINES
said "standard input:2: --steps"
said "standard input:4: the prompt"
said "standard input:5: --stepz: no such option; did you mean --steps?"
said "standard input:6: --output -"
said "standard input:7: --json"
said "standard input:8: wanted a strength"
said "standard input:9: the prompt"
lines 7
run 6 "files" -m /no/such/model --batch-file - <<<"x --init none.png"; said "standard input:1: none.png"
run 6 "folder" -m /no/such/model --batch-file - <<<"x -o nowhere/x.png"; said "standard input:1: nowhere"
printf 'x -o a\ny\nz -o a.png\n' >twice
run 2 "written twice" -m /no/such/model --batch-file twice; said "twice:3: a.png is written by line 1 too"; lines 1
printf 'x --seed 7 -n 3\ny --seed 9\n' >twice
run 2 "seeds overlap" -m /no/such/model --batch-file twice; said "twice:2: dfx-9.png is written by line 1 too"
run 2 "no request" --batch-file /dev/null; said "no request"
run 6 "no file" --batch-file nothing.txt; said nothing.txt
for words in "-o x.png" "--seed 3" "-p x" "--prompt-file /dev/null"; do run 2 "with $words" --batch-file twice $words; said "--batch-file and --"; lines 1; done
run 2 "with a prompt" --batch-file twice x; said "no prompt beside it"
no_pictures
# By the model, and still before the first picture.
run 2 "text too long" "${small[@]}" --batch-file - <<<$'x --size 32x32\ny --text-length 65'; said "standard input:2: text length"
run 4 "does not fit" "${small[@]}" --vram-budget 40M --batch-file - <<<$'x --size 32x32\ny --size 1024x1024'
said "standard input:2: does not fit"; lines 1
no_pictures

# Each is the picture that its own command line makes; options beside the file are defaults.
cat >lines.txt <<'LINES'
a red ball --seed 7 -o one.png
"a blue  ball" --seed 8 --steps 1 -o two --size 32x48

it's a house --seed 9 -n 2 --no-metadata
LINES
run 0 "lines" "${small[@]}" --size 32x32 --batch-file lines.txt --json
[ "$(wc -l <out)" -eq 4 ] || fault "lines: $(wc -l <out) lines of JSON instead of 4"
mkdir alone && cd alone || exit 1
run 0 "one" "${small[@]}" --size 32x32 --seed 7 -o one.png "a red ball"
run 0 "two" "${small[@]}" --size 32x48 --seed 8 --steps 1 -o two.png "a blue  ball"
run 0 "three" "${small[@]}" --size 32x32 --seed 9 -n 2 --no-metadata "it's a house"
cd ..
for file in one two dfx-9 dfx-10; do
    is_file $file.png
    cmp -s $file.png alone/$file.png || fault "lines: $file.png is not the one that is made alone"
done
# A warning names the line that it is of.
run 0 "warnings" "${small[@]}" --batch-file - <<<$'# a\nx --seed 1 --steps 1 --steps 2 --size 32x32'; said "warning: standard input:2: --steps: given 2 times"

# A line that fails between others: its mask does not fit the picture any more that the first line writes over.
"$edge" -q "${small[@]}" --size 32x32 --seed 1 -o init.png x && cp init.png mask.png
run 2 "failure between" "${small[@]}" --batch-file - <<'LINES'
first --size 48x48 --seed 1 -o init.png
second --init init.png --mask mask.png --seed 2 -o second.png
third --size 32x32 --seed 3 -o third.png
LINES
said "standard input:2: --mask mask.png"
said "1 of 3 requests failed"
said "line 2: usage"
is_file third.png
[ ! -e second.png ] || fault "failure between: the failed line left a picture"

# LoRAs of lines: room for the most demanding one.
lora=$root/tests/golden/lora/peft.safetensors
run 0 "LoRAs" "${small[@]}" --size 32x32 --batch-file - <<LINES
a red ball --seed 21 --lora $lora:0.8
a red ball --seed 22
a red ball --seed 23 --lora $lora --lora $root/tests/golden/lora/kohya_dense.safetensors:-1
LINES
grep -qaF "<lora:peft:0.8>" dfx-21.png || fault "LoRAs: the first picture does not name its own"
! grep -qaF "<lora:" dfx-22.png || fault "LoRAs: the second picture names one"
run 0 "LoRA alone" "${small[@]}" --size 32x32 --seed 21 --lora "$lora:0.8" -o alone/21.png "a red ball"
cmp -s dfx-21.png alone/21.png || fault "LoRAs: not the picture that is made alone"

finish
