#!/bin/sh
# Checks that includes go downward only, and that no file lies directly in src/.
#
#   tests/check_layers.sh              checks this checkout
#   tests/check_layers.sh --self-test  checks that each kind of violation is caught, on trees made for it
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

# The floors, lowest first, and which of them each may include besides its own folder and <spillway/...>.
# bench_alloc and bench_replay drive the range allocator directly, bench_sim the device: they are named by file.
# pool/replay is no part of the library: it lies above pool, below the command, and beside bench_replay.
floors='
include/spillway:
pool/base:
pool/device: pool/base
pool: pool/device pool/base
pool/replay: pool pool/device pool/base
spill/io: pool/device pool/base
spill: spill/io pool pool/device pool/base
src/core: spill spill/io pool pool/device pool/base
src/sight: src/core spill spill/io pool pool/device pool/base
src/interop: src/core spill spill/io pool pool/device pool/base
src/cmd: src/sight src/interop src/core spill spill/io pool/replay pool pool/device pool/base
bench/engine:
bench: bench/engine
bench/bench_alloc.c: bench bench/engine pool pool/base
bench/alloc_small.c: bench pool pool/base
bench/alloc_tier.c: bench pool pool/device pool/base
bench/alloc_use.c: bench pool pool/base
bench/bench_replay.c: bench bench/engine pool/replay pool pool/base
bench/bench_sim.c: bench pool/device pool/base
'

# check TREE: prints each violation; true when there is none.
check() {
    (cd "$1" && find include src spill pool bench -type f \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp' \) \
        2>/dev/null | sort) >"$work/files"
    (cd "$1" && FLOORS=$floors awk -v list="$work/files" '
        function dirname(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "." }
        function floor_of(path) {
            if (path in allowed) return path
            for (path = dirname(path); path != "."; path = dirname(path))
                if (path in allowed) return path
            return ""
        }
        function bad(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; failed = 1 }
        BEGIN {
            n = split(ENVIRON["FLOORS"], line, "\n")
            for (i = 1; i <= n; i++)
                if (line[i] != "") {
                    at = index(line[i], ":")
                    allowed[substr(line[i], 1, at - 1)] = substr(line[i], at + 1) " "
                }
            n = split("assert.h complex.h ctype.h errno.h float.h inttypes.h iso646.h limits.h math.h stdalign.h " \
                      "stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h time.h", name, " ")
            for (i = 1; i <= n; i++) standard[name[i]] = 1
            # The libraries of one room: nobody else may depend on them.
            room["liburing.h"] = "spill/io"
            room["cuda.h"] = "pool/device"
            room["xxhash.h"] = "spill"
            while ((getline path < list) > 0) {
                exists[path] = 1
                ARGV[ARGC++] = path
                if (path ~ /^src\/[^\/]*$/) { print path ": no file lies directly in src/"; failed = 1 }
            }
            if (ARGC == 1) { print "no source file found"; failed = 1; ARGV[ARGC++] = "/dev/null" }
        }
        FNR == 1 { floor = floor_of(FILENAME); if (floor == "") bad("lies on no floor") }
        /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
            quoted = $0 ~ /include[ \t]*"/
            target = $0
            sub(/^[^<"]*[<"]/, "", target)
            sub(/[>"].*/, "", target)
            if (target ~ /(^|\/)\.\.?\//) { bad("relative path in include of " target); next }
            if (!quoted) {
                if (target in exists) bad("<" target "> is a private header: include it with quotes")
                else if (target ~ /^spillway\//) {
                    if (!(("include/" target) in exists)) bad("<" target "> does not exist")
                } else if (floor == "include/spillway" && !(target in standard))
                    bad("a public header includes <" target ">")
                else if (target in room && floor != room[target])
                    bad("<" target "> belongs to " room[target])
                next
            }
            beside = dirname(FILENAME) "/" target
            if (floor ~ /^bench/ && beside in exists) target = beside
            if (!(target in exists)) { bad("\"" target "\" is no file from the root of the tree"); next }
            to = floor_of(target)
            if (to != floor && index(allowed[floor], " " to " ") == 0)
                bad(floor " must not include " to " (\"" target "\")")
            else if (floor == "include/spillway")
                bad("a public header includes its siblings as <spillway/...>")
        }
        END { exit failed }')
}

self_test() {
    tree=$work/tree
    failures=0
    # expect TEXT FILE LINE: with LINE in FILE the check must fail, and say TEXT about that file.
    expect() {
        rm -rf "$tree"
        mkdir -p "$tree/include/spillway" "$tree/pool/base" "$tree/pool/device" "$tree/pool/replay" "$tree/spill/io" \
            "$tree/src/core" "$tree/src/sight" "$tree/bench/engine"
        : >"$tree/include/spillway/place.h"
        : >"$tree/bench/engine/join.h"
        : >"$tree/bench/load.h"
        for header in pool/base/error pool/device/device pool/range pool/replay/replay spill/io/io spill/store \
            src/core/buffer src/sight/dump; do
            : >"$tree/$header.h"
        done
        printf '#include <spillway/place.h>\n#include <stdio.h>\n' >"$tree/src/core/manager.c"
        printf '#include "spill/store.h"\n#include "pool/range.h"\n' >>"$tree/src/core/manager.c"
        printf '#include "engine/join.h"\n' >"$tree/bench/bench_join.c"
        printf '#include "pool/range.h"\n' >"$tree/bench/bench_alloc.c"
        printf '#include <liburing.h>\n' >"$tree/spill/io/io_uring.c"
        if ! check "$tree" >"$work/said"; then
            echo "FAIL: a clean tree was refused: $(cat "$work/said")"
            failures=$((failures + 1))
        fi
        printf '%s\n' "$3" >>"$tree/$2"
        if check "$tree" >"$work/said"; then
            echo "FAIL: not caught: $2: $3"
            failures=$((failures + 1))
        elif ! grep -q "^$2:.*$1" "$work/said"; then
            echo "FAIL: $2: $3: said '$(cat "$work/said")' instead of '$1'"
            failures=$((failures + 1))
        fi
    }
    expect 'pool must not include spill' pool/range.c '#include "spill/store.h"'
    expect 'pool/base must not include pool' pool/base/error.c '#include "pool/range.h"'
    expect 'pool must not include pool/replay' pool/range.c '#include "pool/replay/replay.h"'
    expect 'src/core must not include pool/replay' src/core/admit.c '#include "pool/replay/replay.h"'
    expect 'pool/device must not include pool' pool/device/device.c '  #  include "pool/range.h"'
    expect 'spill/io must not include spill' spill/io/io.c '#include "spill/store.h"'
    expect 'spill must not include src/core' spill/mover.c '#include "src/core/buffer.h"'
    expect 'src/core must not include src/sight' src/core/admit.c '#include "src/sight/dump.h"'
    expect 'must not include pool' bench/engine/join.c '#include "pool/range.h"'
    expect 'bench/engine must not include bench' bench/engine/join.c '#include "bench/load.h"'
    expect 'is a private header' src/core/admit.c '#include <pool/range.h>'
    expect 'relative path' spill/store.c '#include "../pool/range.h"'
    expect 'a public header includes <pthread.h>' include/spillway/wait.h '#include <pthread.h>'
    expect 'siblings' include/spillway/wait.h '#include "include/spillway/place.h"'
    expect 'does not exist' src/core/admit.c '#include <spillway/nothing.h>'
    expect 'is no file' src/core/admit.c '#include "buffer.h"'
    expect 'belongs to spill/io' src/core/admit.c '#include <liburing.h>'
    expect 'directly in src' src/main.c '/* nothing */'
    [ "$failures" = 0 ]
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
case ${1:-} in
--self-test) self_test ;;
'') check "$root" ;;
*)
    echo "usage: check_layers.sh [--self-test]" >&2
    exit 2
    ;;
esac
