#!/bin/bash
# dfx-edge --init, --strength, --mask, from outside: what is refused and how, sizes, what the files say. Uses the bundled model at
# small sizes. $DFX_EDGE is the program; run from the root of the repository.
. tests/cli.sh
photo=$root/tests/golden/pictures
small=(--device cpu --steps 2 --text-length 8 --seed 7)

holds() { grep -qaF -e "$2" "$1" || fault "$name: $1 does not say $2"; }

# Before the model is opened: one line each.
for value in 0 -0.1 1.01 nan "" 1e-3; do run 2 "strength '$value'" -m /no/such/model --init "$photo/colour.jpg" "--strength=$value" x; said --strength; lines 1; done
run 2 "strength alone" -m /no/such/model --strength 0.5 x; said "--init"; lines 1
run 2 "mask alone" -m /no/such/model --mask "$photo/colour.jpg" x; said "--init"; lines 1
run 6 "init missing" -m /no/such/model --init none.png x; said "none.png"; lines 1
run 3 "init not a picture" -m /no/such/model --init "$root/README.md" x; said "PNG or JPEG"; lines 1
run 3 "init of CMYK" -m /no/such/model --init "$photo/cmyk.jpg" x; said "RGB"; lines 1
head -c 400 "$photo/colour.jpg" >cut.jpg
run 3 "init cut" -m /no/such/model --init cut.jpg x; said "cut or damaged"; lines 1

run 0 "first" "${small[@]}" --size 64x48 -o first.png "a red ball"
# The picture's own size, and what the file says.
run 0 "init" "${small[@]}" --init first.png --strength 0.5 -o second.png "a blue ball"
[ "$(png_size second.png)" = 64x48 ] || fault "init: size $(png_size second.png)"
holds second.png "Denoising strength: 0.5, Init image hash: "
holds second.png '"strength":0.5,"init":"xxh3:'
grep -qE "^denoise  " err || fault "init: one of two steps is not made: $(cat err)"
run 0 "again" "${small[@]}" --init first.png --strength 0.5 -o again.png "a blue ball"
cmp -s second.png again.png || fault "again: the same line gives another file"
# Another size: the middle of it.
run 0 "size" "${small[@]}" --init first.png --strength 1 --size 32x32 -o square.png "a red ball"
said "the middle 48x48 of its 64x48 pixels, as 32x32"
[ "$(png_size square.png)" = 32x32 ] || fault "size: $(png_size square.png)"
# A strength of 1 is text to image.
run 0 "text" "${small[@]}" --size 32x32 -o text.png "a red ball"
cmp -s <(pixels square.png) <(pixels text.png) || fault "strength 1: not the picture of the text"
# A width decides the height; a camera's picture; 23x17 is 32x16 or so.
run 0 "photo" "${small[@]}" --init "$photo/exif_mm.jpg" --width 48 -o photo.png "a red ball"
[ "$(png_size photo.png)" = 48x32 ] || fault "photo: size $(png_size photo.png)"
# Masks.
run 2 "mask of another size" "${small[@]}" --init first.png --mask square.png "a red ball"
said "64x48"; lines 1
run 0 "mask" "${small[@]}" --init first.png --mask first.png -o masked.png --json "a red ball"
holds masked.png "Mask: yes"
grep -qF '"encode": ' out || fault "mask: no seconds of encoding in $(cat out)"
run 0 "no init" "${small[@]}" --size 32x32 --json -o plain.png "a red ball"
! grep -qF encode out || fault "no init: it tells of encoding"

# The plan tells of the encoder where one is asked for.
run 0 "plan" plan --like flux-dev --vram-budget 8G --ram-budget 64G --init
tail -n +3 out | cmp -s - "$root/tests/plans/flux-dev-int8-rtx4090-8G-init.txt" || fault "plan: not that of tests/plans"

finish
