#!/bin/bash
# dfx-edge repl, from outside, through a pipe. Uses the bundled model at small sizes. $DFX_EDGE is the program; run from the root of
# the repository.
subcommand=(repl)
. tests/cli.sh
small=(--device cpu --steps 2 --text-length 8 --size 32x32)

run 0 "help" --help </dev/null; printed ":history"
run 0 "nothing" "${small[@]}" </dev/null
run 2 "a prompt" "${small[@]}" "a ball" </dev/null; said "standard input"
run 2 "an option of generate alone" --batch-file x </dev/null; said "no such option"

# Prompts as they stand, settings, what is remembered.
run 0 "session" "${small[@]}" --no-metadata <<'LINES'
:set seed 7
a "red" ball -- it's --steps 1

:set output my ball
:set output "my ball"
:set seed 8
::colon
:set output
:set size 48x32
:set width 64
wide
:history
:show
:quit
never
LINES
[ "$(grep -c png out)" -eq 3 ] || fault "session: the history is $(cat out)"
is_file dfx-7.png; is_file "my ball-8.png"; is_file dfx-8.png
printed "   1  dfx-7.png  a \"red\" ball -- it's --steps 1"
printed "   2  my ball-8.png  :colon"
printed "   3  dfx-8.png  wide"
grep -qE "^  width +64$" out || fault "session: a width is not shown"
grep -qE "^  size +$" out || fault "session: a width leaves the size"
grep -qF "64x32" err || fault "session: the width is not that of the picture"
! grep -q never out err || fault "session: it goes on behind :quit"
"$edge" -q "${small[@]}" --no-metadata --seed 7 -o alone.png "a \"red\" ball -- it's --steps 1"
cmp -s dfx-7.png alone.png || fault "session: not the picture that is made alone"

# A line that fails, and the others; the exit code tells.
run 2 "failures" "${small[@]}" <<'LINES'
:nonsense
:set
:set colour red
:set steps none
:set prompt x
:set steps "1
:set seed 31
a ball
:set strength 0.5
not made
LINES
said ":nonsense: no such command"
said ":set: wanted a key"
said ":set colour: no such key"
said "--steps: wanted a whole number"
said ":set prompt: no such key"
said ":set steps: found a quote that does not end"
said "--strength: wanted --init"
is_file dfx-31.png

# What is there serves the next picture: the second prompt is the first, so no text is encoded; JSON has standard output alone.
run 0 "JSON" "${small[@]}" --json <<'LINES'
:set seed 41
a ball
:set seed 42
a ball
:history
LINES
[ "$(wc -l <out)" -eq 2 ] || fault "JSON: $(wc -l <out) lines"
sed -n 2p out | grep -qF '"text": 0.0000' || fault "JSON: the text was encoded again: $(sed -n 2p out)"
sed -n 2p out | grep -qF '"copied_bytes": 0,' || fault "JSON: weights came again: $(sed -n 2p out)"
said "dfx-42.png"

finish
