#!/bin/sh
# On a machine with a GPU: runs the tests that touch a device on its own driver, then measures the mover beside the
# driver's own copies. Prints one table and writes one JSON file. Needs no network, and takes less than four minutes.
#
# usage: check.sh [BUILD [JSON]]     (build/ in the checkout, and gpu.json in BUILD)
#
# BUILD is configured and built where it is not. Ends with 77, saying why, where there is no GPU.
# SPILLWAY_CHECK_QUICK=1: fewer and shorter measurements. docs/gpu.md says what is measured.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=${1:-$root/build}
json=${2:-$build/gpu.json}
wanted=0.95 # of the driver's own rate, each way

# What runs with a device and needs nothing that only the simulated one has (faults, functions in streams).
suite='admit buffer grow_vmm headroom hole mover pool pool_blocks pressure reserve_use spill'
suite="$suite stats ticket tier tier_small"

# The driver's library in a folder of LD_LIBRARY_PATH may be a test's.
has_driver() {
    [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] && return 0
    (
        IFS=:
        for folder in ${LD_LIBRARY_PATH:-}; do
            [ -e "$folder/libcuda.so.1" ] && exit 0
        done
        exit 1
    )
}
has_driver || {
    echo 'Skipped: no GPU here (neither /dev/nvidiactl nor a libcuda.so.1 in LD_LIBRARY_PATH).'
    exit 77
}

missing=
targets=bench/bench_device
for name in $suite; do targets="$targets tests/test_$name"; done
for target in $targets; do [ -x "$build/$target" ] || missing="$missing $target"; done
if [ -n "$missing" ] || [ $# -eq 0 ]; then
    [ -e "$build/build.ninja" ] || meson setup "$build" "$root"
    # shellcheck disable=SC2086 # a list of words
    ninja -C "$build" --quiet $targets
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
started=$(date +%s)
failed=0

# checked NAME SECONDS COMMAND...: one line, and what COMMAND said where it fails.
checked() {
    name=$1 limit=$2
    shift 2
    if timeout "$limit" "$@" >"$log" 2>&1 </dev/null; then
        printf 'ok      %s\n' "$name"
    else
        status=$?
        printf 'FAILED  %s (%s)\n' "$name" "$status"
        tail -n 40 "$log"
        failed=1
    fi
}

options=
[ -z "${SPILLWAY_CHECK_QUICK:-}" ] || options=--quick

# The measurement goes first: it also finds out whether there is a device. Its table is printed last.
status=0
# shellcheck disable=SC2086 # none or one
"$build/bench/bench_device" --driver cuda --at-least $wanted --json-file "$json" $options >"$log" 2>&1 || status=$?
if [ "$status" -eq 77 ]; then
    echo "Skipped: $(cat "$log")"
    exit 77
fi
table=$(cat "$log")
[ "$status" -eq 0 ] || failed=1

for name in $suite; do
    checked "test_$name" 90 env SPILLWAY_TEST_DRIVER=gpu "$build/tests/test_$name"
done
if command -v compute-sanitizer >/dev/null 2>&1; then
    checked 'bench_device under compute-sanitizer' 60 \
        compute-sanitizer --error-exitcode 1 "$build/bench/bench_device" --driver cuda --quick
else
    echo 'not run compute-sanitizer: it is not installed'
fi
printf '\n%s\n\n%s seconds; %s\n' "$table" "$(($(date +%s) - started))" "$json"
exit $failed
