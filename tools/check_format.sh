#!/bin/sh
# Is every C file laid out as .clang-format says?
#
#     tools/check_format.sh          exit 0: yes, 1: no, 77: cannot be told here
#     tools/check_format.sh --fix    rewrite the files that are not (`make format`)
#
# Versions of clang-format lay out the same file differently, so only version 14 (Debian 12, Ubuntu 22.04)
# decides; others are listened to and not obeyed.
set -u
cd "$(dirname "$0")/.." || exit 2

tool=clang-format-14
command -v "$tool" >/dev/null || tool=clang-format
if ! command -v "$tool" >/dev/null; then
    echo "clang-format is not installed; \`make setup\` installs it"
    exit 77
fi
version=$("$tool" --version | sed 's/.*version \([0-9]*\).*/\1/')

all_files() {
    find core quant kernels offload models tools tests -type f -name '*.[ch]' -print0
}

if [ "${1:-}" = --fix ]; then
    [ "$version" = 14 ] || echo "note: clang-format $version may lay out files differently from version 14, which decides"
    all_files | xargs -0 -r "$tool" -i
    exit
fi
faults=$(all_files | xargs -0 -r "$tool" --dry-run -Werror 2>&1) && exit 0

# One line for each place is enough; anything else that the tool said is shown as it is.
echo "$faults" | sed -n 's/^\([^ ].*:[0-9]*\):[0-9]*: error: code should be.*/\1: not as .clang-format says/p; t
/^[^ ].*: \(error\|warning\):/p' | uniq
if [ "$version" = 14 ]; then
    echo "\`make format\` rewrites these files"
    exit 1
else
    echo "clang-format $version lays some files out differently; version 14 decides, and is not here"
    exit 77
fi
