#!/bin/bash
# tools/train/devices.py, which compares the pictures of two devices: what it calls a fault, and pictures of the CPU against
# themselves. $DFX_EDGE is the program; run from the root of the repository. Wants python3 with numpy.
[ -x "${DFX_EDGE:-}" ] && [ -f models/scenes/model_index.json ] || { echo "cli_devices: skipped: no \$DFX_EDGE or no models/scenes"; exit 77; }
python3 -c 'import sys, numpy; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo "cli_devices: skipped: no python3 with numpy"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/dfx-cli.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME=$dir PYTHONDONTWRITEBYTECODE=1
faults=0

fault() { echo "cli_devices: $*"; faults=$((faults + 1)); }

# One value off everywhere is 20 log10(255) = 48.13 dB; at 35 dB and one point, nothing; below and above, a fault each.
PYTHONPATH=tools/train python3 - <<'PYTHON' || fault "psnr or faults"
import math
import numpy as np
import devices

a = np.full((4, 6, 3), 100, np.uint8)
assert devices.psnr(a, a) == math.inf
assert abs(devices.psnr(a, a + 1) - 48.1308) < 1e-4
assert devices.psnr(np.zeros_like(a), a + 155) == 0
assert devices.faults({1: 35.0, 2: math.inf}, 0.90, 0.89) == []
assert len(devices.faults({1: 34.9, 2: 50.0}, 0.90, 0.89)) == 1
assert len(devices.faults({1: 34.9, 2: 20.0}, 0.90, 0.85)) == 3
PYTHON

devices() { python3 tools/train/devices.py --binary "$DFX_EDGE" --steps 2 --limit 2 "$@" >"$dir/out" 2>"$dir/err"; }
devices --device cpu --jobs 2 || fault "CPU against itself: exit code $?: $(cat "$dir/out" "$dir/err")"
grep -q '^2 captions, 2 steps, cpu against cpu: lowest inf dB, whole captions right \(.*\) and \1$' "$dir/out" || fault "last line: $(tail -n 1 "$dir/out")"
devices --device nothing && fault "a device that is none: passed"
grep -q '^devices.py: .*nothing' "$dir/err" || fault "a device that is none: $(cat "$dir/err")"
[ $faults -eq 0 ]
