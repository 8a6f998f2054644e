#!/bin/sh
# Checks the model of waiting and arbitration with spin, and that spin finds each fault that the model can be given.
#
# usage: run.sh [--long] [--fault NAME]     (--long: larger configurations; --fault: only that one)
#
# Ends with 77, "skipped", where there is no spin.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
command -v spin >/dev/null 2>&1 || {
    echo 'SKIP: tests/model needs spin (Debian: apt-get install spin)'
    exit 77
}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/spillway-model.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failures=0

# search OPTIMISE SECONDS MEMORY_MB SWITCH...: leaves what spin's program said in $work/said.
search() {
    optimise=$1 seconds=$2 memory=$3
    shift 3
    (
        cd "$work"
        rm -f pan* -- *.trail
        spin -a "$@" "$here/arbiter.pml" >spin.log 2>&1 || { cat spin.log; exit 1; }
        "${CC:-cc}" "$optimise" -w -DNOFAIR -DCOLLAPSE "-DMEMLIM=$memory" -o pan pan.c
        timeout "$seconds" ./pan -a -m100000 -w22 >said 2>&1 || echo "the search did not end within $seconds s" >>said
    )
}

# holds SECONDS MEMORY_MB SWITCH...: every claim holds, over all states.
holds() {
    search -O2 "$@"
    shift 2
    if grep -q 'errors: 0' "$work/said" && ! grep -qE 'too small|did not end|out of memory|max search depth' "$work/said"
    then
        sed -n "s/^ *\([0-9]*\) states, stored.*/holds: $*: \1 states/p" "$work/said"
    else
        failures=$((failures + 1))
        echo "FAIL: $*:"
        tail -n 20 "$work/said"
    fi
}

# caught FAULT SWITCH...: with that rule broken, spin finds an error.
caught() {
    [ "$only" = all ] || [ "$only" = "$1" ] || return 0
    fault=$1
    shift
    search -O0 120 2000 "-DBREAK_$fault" "$@"
    if grep -q '^pan:1:' "$work/said"; then
        sed -n "s/^pan:1: \(.\{1,72\}\).*/caught: $fault: \1/p" "$work/said"
    else
        failures=$((failures + 1))
        echo "FAIL: not caught: $fault $*"
        tail -n 5 "$work/said"
    fi
}

only=all
long=false
case ${1:-} in
--long) long=true ;;
--fault) only=$2 ;;
esac

if [ "$only" = all ]; then
    holds 120 1000 -DREQUESTS=1
    holds 120 1000 -DREQUESTS=1 -DHELPER=0
    holds 120 1000 -DREQUESTS=1 -DCANCEL
fi
if $long; then
    holds 3600 8000 -DOBEY -DREQUESTS_1=1
    holds 3600 8000 -DOBEY
    holds 3600 8000 -DREQUESTS_1=1
fi

caught ENQUEUE_FENCE -DREQUESTS=1
caught RELEASE_FENCE -DREQUESTS=1
caught GATE -DREQUESTS=1
caught WAKE_FIRST -DREQUESTS=1
caught DOUBLE_END -DREQUESTS=1 -DCANCEL
caught SEAL_SILENT -DOBEY -DREQUESTS_1=1
caught BARRIER -DOBEY -DREQUESTS_1=1
caught BARRIER_STAYS -DOBEY -DREQUESTS_1=1
caught LATE_UNBLOCK -DOBEY -DREQUESTS_1=1
caught PARK_RUNS -DOBEY -DREQUESTS_1=1
caught PARKED_UNCOUNTED -DREQUESTS_1=1
caught MOVE_UNCHECKED -DOBEY -DREQUESTS_1=1
caught FINISH_UNCHECKED -DOBEY -DREQUESTS_1=1
caught ASK_AGAIN -DREQUESTS_1=1
caught ANY_GRANT_COUNTS -DREQUESTS_1=1
if $long || [ "$only" != all ]; then
    caught END_UNSEEN -DREQUESTS_1=1 -DCANCEL
    caught DETACH_UNCHECKED -DOBEY -DREQUESTS_1=1 -DHELPER=0
fi
echo "$failures failures"
[ "$failures" = 0 ]
