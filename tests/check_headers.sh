#!/bin/sh
# Checks that every header compiles alone, twice over: public ones as C11 and C++17 without a warning, private ones as
# GNU C11.
#
# usage: check_headers.sh [C-COMPILER [C++-COMPILER]]
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cc=${1:-${CC:-cc}}
cxx=${2:-${CXX:-c++}}
cd "$root"

warnings='-Wall -Wextra -Wconversion -Wshadow -Werror'
libraries=$(pkg-config --cflags liburing libxxhash)
checked=0
failed=0

# alone HEADER COMPILER...: compiles a file that includes HEADER and nothing else.
alone() {
    header=$1
    shift
    checked=$((checked + 1))
    if ! printf '#include "%s"\n#include "%s"\ntypedef int not_empty;\n' "$header" "$header" |
        "$@" -fsyntax-only -; then
        echo "FAIL: $header does not compile alone: $*"
        failed=$((failed + 1))
    fi
}

# shellcheck disable=SC2086 # lists of flags
for header in $(find include src spill pool bench -name '*.h' | sort); do
    case $header in
    include/*)
        alone "$header" $cc -std=c11 -pedantic -Wstrict-prototypes $warnings -Iinclude -I. -x c
        alone "$header" $cxx -std=c++17 -pedantic $warnings -Iinclude -I. -x c++
        ;;
    *) alone "$header" $cc -std=gnu11 -D_GNU_SOURCE $warnings -Iinclude -I. $libraries -x c ;;
    esac
done
echo "$checked compilations, $failed failed"
[ "$failed" = 0 ] && [ "$checked" -gt 0 ]
