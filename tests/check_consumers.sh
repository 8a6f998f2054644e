#!/bin/sh
# Checks that programs outside the tree can embed Spillway: from an installation through pkg-config, against the shared
# and the static library, and as a meson subproject; each in C11 and C++17.
#
# usage: check_consumers.sh [BUILD [C-COMPILER [C++-COMPILER]]]
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$(CDPATH='' cd -- "${1:-$root/build}" && pwd)
cc=${2:-${CC:-cc}}
cxx=${3:-${CXX:-c++}}
consumer=$root/tests/consumer

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# run WHAT COMMAND...: COMMAND must succeed and end with the line "ok".
run() {
    what=$1
    shift
    if [ "$("$@" | tail -n 1)" != ok ]; then
        echo "FAIL: $what"
        exit 1
    fi
    echo "$what: ok"
}

# quietly COMMAND...: shows what it said only when it fails.
quietly() {
    if ! "$@" >"$work/log" 2>&1; then
        cat "$work/log"
        echo "FAIL: $*"
        exit 1
    fi
}

warnings='-Wall -Wextra -Wconversion -Wshadow -Werror'
quietly meson install -C "$build" --no-rebuild --destdir "$work/install"
pc=$(find "$work/install" -name spillway.pc)
libdir=$(dirname "$(dirname "$pc")")
# The prefix as installed, so that the .pc file's other folders follow from it, wherever it lies.
prefix=$work/install$(sed -n 's/^prefix=//p' "$pc")
flags() {
    PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --define-variable=prefix=PREFIX "$@" spillway
}
# build_with OUT COMPILER SOURCE FLAG...: PREFIX stands for a path that may hold spaces.
build_with() {
    out=$1
    compiler=$2
    source=$3
    shift 3
    for flag in "$@"; do
        shift
        case $flag in
        -[IL]PREFIX*) set -- "$@" "$(printf %.2s "$flag")$prefix${flag#-?PREFIX}" ;;
        *) set -- "$@" "$flag" ;;
        esac
    done
    # shellcheck disable=SC2086 # $compiler may carry flags
    quietly $compiler "$consumer/$source" -o "$work/$out" "$@"
}

# shellcheck disable=SC2046,SC2086 # lists of flags
{
    build_with shared_c "$cc -std=c11 $warnings" consumer.c $(flags --cflags --libs)
    build_with shared_cpp "$cxx -std=c++17 $warnings" consumer.cpp $(flags --cflags --libs)
    LD_LIBRARY_PATH=$libdir run 'installed, shared, C' "$work/shared_c"
    LD_LIBRARY_PATH=$libdir run 'installed, shared, C++' "$work/shared_cpp"

    rm -f "$libdir"/libspillway.so*
    build_with static_c "$cc -std=c11 $warnings" consumer.c $(flags --static --cflags --libs)
    build_with static_cpp "$cxx -std=c++17 $warnings" consumer.cpp $(flags --static --cflags --libs)
    run 'installed, static, C' "$work/static_c"
    run 'installed, static, C++' "$work/static_cpp"
}

cp -R "$consumer" "$work/subproject"
mkdir "$work/subproject/subprojects"
ln -s "$root" "$work/subproject/subprojects/spillway"
quietly env CC="$cc" CXX="$cxx" meson setup --force-fallback-for=spillway "$work/sub-build" "$work/subproject"
quietly ninja -C "$work/sub-build"
run 'subproject, C' "$work/sub-build/consumer_c"
run 'subproject, C++' "$work/sub-build/consumer_cpp"
