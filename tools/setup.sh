#!/bin/sh
# Installs what building and testing dfx-edge needs and this machine lacks. Debian and Ubuntu.
#
#     tools/setup.sh [build|check|fuzz]      install; "check" (the default) adds what the tests need, "fuzz" clang to that
#     tools/setup.sh --need [build|check]    install nothing: say in one line what is missing, exit 1
#     tools/setup.sh --has NAME              exit 0 when this one thing is there
#
# A thing counts as there when the compiler finds it, whoever put it there; package names matter only
# for what is missing. Where nothing is missing this says nothing and costs a few milliseconds.
set -u

has=
[ "${1:-}" = --has ] && has=$2 && shift 2
need_only=0
[ "${1:-}" = --need ] && need_only=1 && shift
stage=${1:-check}

packages="build-essential pkg-config libopenblas0-pthread libjansson-dev libpng-dev libjpeg-dev libmimalloc-dev libutf8proc-dev libxxhash-dev liblz4-dev liburing-dev"
optional=
case $stage in
build) ;;
check | fuzz)
    packages="$packages libcmocka-dev"
    optional=clang-format # without it one check is skipped, and nothing else
    [ $stage = fuzz ] && optional="clang-format clang"
    ;;
*)
    echo "usage: tools/setup.sh [--need] [build|check|fuzz]" >&2
    exit 2
    ;;
esac

main() {
    [ -z "$has" ] || { have "$has" >/dev/null 2>&1 && exit 0 || exit 1; }
    missing=$(missing_of "$packages")
    if [ $need_only = 1 ]; then
        [ -z "$missing" ] && exit 0
        echo "missing:$missing; \`make setup\` installs that" >&2
        exit 1
    fi
    missing_optional=$(missing_of "$optional")
    [ -z "$missing$missing_optional" ] && exit 0

    find_root "$missing"
    log=$(mktemp) || exit 1
    trap 'rm -f "$log"' EXIT
    if [ -n "$missing" ]; then
        install "$missing" || give_up "$missing"
        missing=$(missing_of "$packages")
        [ -z "$missing" ] || give_up "$missing"
    fi
    if [ -n "$missing_optional" ] && ! install "$missing_optional"; then
        echo "setup:$missing_optional cannot be installed here: what needs it will be skipped"
    fi
    echo "setup: done"
}

missing_of() {
    for package in $1; do
        have "$package" >/dev/null 2>&1 || printf ' %s' "$package"
    done
}

have() {
    case $1 in
    build-essential) command -v make && command -v ar && includes stdio.h ;;
    pkg-config) command -v pkg-config ;;
    libopenblas0-pthread) { ldconfig -p || /sbin/ldconfig -p; } | grep "libopenblas\.so\.0" ;; # loaded at run time
    libjansson-dev) pkg-config --exists jansson ;;
    libpng-dev) pkg-config --exists libpng ;;
    libjpeg-dev) pkg-config --exists libjpeg ;;
    libutf8proc-dev) pkg-config --exists libutf8proc ;;
    libxxhash-dev) pkg-config --exists libxxhash ;;
    liblz4-dev) pkg-config --exists liblz4 ;;
    liburing-dev) pkg-config --exists liburing ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    libmimalloc-dev) includes mimalloc.h ;;
    clang-format) command -v clang-format-14 || command -v clang-format ;;
    clang) has_libfuzzer ;;
    *) false ;;
    esac
}

has_libfuzzer() {
    echo 'int LLVMFuzzerTestOneInput(const char *p, long n); int LLVMFuzzerTestOneInput(const char *p, long n) { return 0; }' |
        ${CLANG:-clang} -fsanitize=fuzzer,address,undefined -x c - -o /dev/null
}

# Early packages of mimalloc put the header one folder deeper and have no .pc file; the Makefile looks there too.
includes() {
    set -- "$1" /usr/include/mimalloc-[0-9]*
    echo "#include <$1>" | ${CC:-gcc} -E -x c -I "$2" -
}

# Sets `as_root` to what runs a command as root, or says what an administrator has to type.
find_root() {
    as_root=
    if ! command -v apt-get >/dev/null; then
        problem="this script installs with apt-get, which is not here"
    elif [ "$(id -u)" = 0 ]; then
        return
    elif ! command -v sudo >/dev/null; then
        problem="installing needs root, and there is no sudo"
    elif sudo -n true 2>/dev/null || { [ -t 0 ] && sudo true; }; then
        as_root=sudo
        return
    else
        problem="installing needs root, and sudo did not let us"
    fi
    if [ -z "$1" ]; then
        echo "setup:$missing_optional is missing and $problem: what needs it will be skipped"
        exit 0
    fi
    {
        echo "setup: missing$1; $problem. An administrator has to type:"
        echo "apt-get update && apt-get install -y$1$missing_optional"
    } >&2
    exit 1
}

# The lists are refreshed only when they do not do: on a fresh machine they are empty, later mostly good.
install() {
    echo "setup: installing$1"
    apt_get install $(packages_of "$1") && return
    echo "setup: refreshing the package lists"
    apt_get update
    apt_get install $(packages_of "$1")
}

# Some systems keep clang's libFuzzer in a package of its own.
packages_of() {
    echo "$1"
    case " $1 " in
    *" clang "*) apt-cache show libclang-rt-dev 2>/dev/null | grep -qx 'Package: libclang-rt-dev' && echo libclang-rt-dev ;;
    esac
}

# Never asks, waits for another apt-get to finish; what it says is shown only when it fails.
apt_get() {
    verb=$1
    shift
    $as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -y -o DPkg::Lock::Timeout=300 --no-install-recommends "$verb" "$@" >>"$log" 2>&1 </dev/null
}

give_up() {
    tail -n 40 "$log" >&2
    echo "setup: could not install$1; apt-get's own words are above" >&2
    exit 1
}

main
