#!/bin/sh
# bench_join from end to end: right answers at every budget down to the smallest, on tables that are hard to join, and
# one clear line with the right exit status when something is wrong. LIBCUDA is a driver that runs no functions of the
# host. Usage: flow_join.sh BENCH_JOIN LIBCUDA
set -u
join=$1
libcuda=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/flow_join.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
spill=$work/spill
mkdir "$spill"
failures=0
runs=0
at= # where right expects the rows to be worked on; empty: anywhere

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

bytes() {
    case $1 in
    *K) echo $((${1%K} * 1024)) ;;
    *M) echo $((${1%M} * 1048576)) ;;
    *) echo "$1" ;;
    esac
}

# right WANTED "DEVICE PINNED HOST" ARGUMENTS...: the run ends well, within its budgets, and leaves no file.
right() {
    wanted=$1
    # shellcheck disable=SC2086 # three words
    set -- $2 -- "$@"
    device=$1 pinned=$2 host=$3
    shift 6
    runs=$((runs + 1))
    if ! "$join" "$@" --device-limit "$device" --pinned-limit "$pinned" --host-limit "$host" --driver sim \
        --disk "$spill" --json --verify >"$work/out" 2>"$work/err"; then
        fail "$* with $device $pinned $host: $(cat "$work/err")"
    elif ! python3 "$here/join_tables.py" check "$wanted" "$(bytes "$device") $(bytes "$pinned") $(bytes "$host")" \
        $at <"$work/out" 2>"$work/err"; then
        fail "$* with $device $pinned $host: $(tail -1 "$work/err")"
    fi
    [ -z "$(ls -A "$spill")" ] || fail "$*: $(ls -A "$spill") left in the spill folder"
}

# wrong STATUS TEXT ARGUMENTS...: the run ends with that status and one line on stderr that holds TEXT.
wrong() {
    status=$1 text=$2
    shift 2
    runs=$((runs + 1))
    "$join" "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$status" ] || fail "$*: exit status $got instead of $status: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$*: not one line: $(cat "$work/err")"
    grep -qF -e "$text" "$work/err" || fail "$*: '$text' is not in: $(cat "$work/err")"
    [ ! -s "$work/out" ] || fail "$*: output in spite of the error"
    [ -z "$(ls -A "$spill")" ] || fail "$*: $(ls -A "$spill") left in the spill folder"
}

# Generated tables. The smallest budgets of --help come first; the reference is a run that needs no disk.
"$join" --scale-factor 0.05 --host-limit 256M --json --verify >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
wanted=$(sed 's/,"work.*/}/' "$work/out")
for budget in "0 0 2M" "0 0 4M" "0 2M 0" "1M 1M 1536K" "0 1M 8M" "2M 0 4M" "0 0 256M"; do
    right "$wanted" "$budget" --scale-factor 0.05 --threads 1
done
for budget in "0 0 4M" "0 0 8M" "0 4M 0" "1M 1M 3M" "2M 2M 4M" "4M 0 4M" "64M 1M 4M"; do
    for io in uring threads; do
        right "$wanted" "$budget" --scale-factor 0.05 --threads 2 --io $io
    done
done
right "$wanted" "0 0 16M" --scale-factor 0.05 --threads 5
right "$wanted" "0 0 2M" --scale-factor 0.05

# The same on the device: the smallest budgets first, with schedules of several seeds, and a device that takes its time.
at=device
for budget in "1536K 1M 0" "1536K 0 1M" "2M 2M 2M"; do
    right "$wanted" "$budget" --scale-factor 0.05 --threads 1 --work device
    right "$wanted" "$budget" --scale-factor 0.05 --threads 1 --spec "driver=sim:11"
done
for budget in "3M 1M 0" "3M 0 1M" "4M 1M 1M" "64M 1M 4M"; do
    for spec in "driver=sim" "driver=sim:1" "driver=sim:2" "driver=sim; model=h2d:512M,d2h:256M,duplex:512M,latency:20us"; do
        right "$wanted" "$budget" --scale-factor 0.05 --threads 2 --spec "$spec"
    done
done
right "$wanted" "16M 1M 4M" --scale-factor 0.05 --threads 5 --io threads
at=host
right "$wanted" "64M 1M 4M" --scale-factor 0.05 --threads 2 --work host
right "$wanted" "3071K 1M 4M" --scale-factor 0.05 --threads 2
at=

# What is written is what was made.
"$join" --scale-factor 0.05 --host-limit 64M --write "$work/kept" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
right "$wanted" "0 0 4M" --lineitem "$work/kept/lineitem" --partsupp "$work/kept/partsupp" --threads 2
[ "$(ls -A "$work/kept")" = "$(printf 'lineitem\npartsupp')" ] || fail "--write left $(ls -A "$work/kept")"
wrong 1 "exists already" --scale-factor 0.01 --host-limit 64M --write "$work/kept"

# Tables that nobody expects, with an answer of another make.
for kind in mixed wide hot same swapped disjoint empty empty_lineitem one; do
    mkdir "$work/$kind"
    wanted=$(python3 "$here/join_tables.py" make $kind "$work/$kind") || fail "cannot make $kind"
    for budget in "0 0 2M" "1M 1M 2M" "0 0 64M"; do
        right "$wanted" "$budget" --lineitem "$work/$kind/lineitem" --partsupp "$work/$kind/partsupp" --threads 1
    done
    right "$wanted" "0 0 4M" --lineitem "$work/$kind/lineitem" --partsupp "$work/$kind/partsupp" --threads 2 \
        --io threads
    at=device
    right "$wanted" "1536K 0 1M" --lineitem "$work/$kind/lineitem" --partsupp "$work/$kind/partsupp" --threads 1
    right "$wanted" "3M 1M 1M" --lineitem "$work/$kind/lineitem" --partsupp "$work/$kind/partsupp" --threads 2 \
        --spec "driver=sim:3"
    at=
done

# Spill folders of any name; one that is missing is created for the run.
for name in "a b" "a,b;c" "d:e" "it's"; do
    odd="$work/odd $name"
    "$join" --scale-factor 0.05 --host-limit 4M --disk "$odd:0" --verify >"$work/out" 2>"$work/err" ||
        fail "--disk '$odd:0': $(cat "$work/err")"
    grep -qF -e "$odd" "$work/out" || fail "the configuration does not show '$odd'"
    [ ! -e "$odd" ] || fail "'$odd' stayed"
    runs=$((runs + 1))
done

# What a simulated device has from the environment is part of the configuration.
runs=$((runs + 1))
SPILLWAY_MODEL=b200/1024 SPILLWAY_SIM_SEED=7 "$join" --scale-factor 0.01 --device-limit 16M --host-limit 64M \
    --driver sim >"$work/out" 2>"$work/err" || fail "a model and a seed of the environment: $(cat "$work/err")"
grep -qF 'driver=sim; SPILLWAY_MODEL=b200/1024; SPILLWAY_SIM_SEED=7' "$work/out" ||
    fail "the configuration does not show the environment: $(tail -1 "$work/out")"

# stopped STATUS SIGNAL WAIT_FOR ARGUMENTS...: a run that gets the signal once WAIT_FOR exists says so in one line, ends
# with that status, and leaves nothing below $work/new.
stopped() {
    runs=$((runs + 1))
    python3 - "$join" "$@" >"$work/out" 2>&1 <<'END' || fail "SIG$2: $(tail -1 "$work/out")"
import os, signal, subprocess, sys, time
join, status, name, wait_for = sys.argv[1:5]
number = getattr(signal, "SIG" + name)
run = subprocess.Popen([join] + sys.argv[5:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
while not os.path.exists(wait_for) and run.poll() is None:
    time.sleep(0.001)
run.send_signal(number)
out, err = run.communicate()
assert run.returncode == int(status), "status %d, %s" % (run.returncode, err)
assert err.startswith("bench_join: interrupted by SIG" + name) and err.count("\n") == 1 and not out, err + out
assert not os.path.exists(wait_for), wait_for
END
    [ ! -e "$work/new" ] || fail "SIG$2 left $(find "$work/new")"
}
for signal in "130 INT" "143 TERM" "129 HUP"; do
    # shellcheck disable=SC2086 # two words
    stopped $signal "$work/new" --scale-factor 20 --host-limit 64M --disk "$work/new"
done
stopped 143 TERM "$work/new" --scale-factor 20 --host-limit 64M --disk "$spill" --write "$work/new"
stopped 143 TERM "$work/new" --scale-factor 20 --device-limit 64M --host-limit 64M --driver sim --disk "$work/new"

# Errors.
l=$work/mixed/lineitem p=$work/mixed/partsupp
wrong 2 "no input" --host-limit 64M
wrong 2 "--frobnicate" --scale-factor 1 --frobnicate
wrong 2 "--threads 0" --scale-factor 1 --threads 0
wrong 2 "--host-limit 12Q" --scale-factor 1 --host-limit 12Q
wrong 2 "--disk $spill:12Q" --scale-factor 1 --disk "$spill:12Q"
wrong 2 "too large" --scale-factor 1 --host-limit 99999999999999999999
wrong 2 "--partsupp DIR is missing" --lineitem "$l"
wrong 2 "--lineitem DIR is missing" --partsupp "$p"
wrong 2 "named twice" --scale-factor 0.05 --host-limit 4M --disk "$spill" --disk "$spill/:1G"
wrong 2 "too small" --scale-factor 0.01 --host-limit 2M --threads 2 --disk "$spill"
wrong 2 "too small" --scale-factor 0.01 --host-limit 1M --disk "$spill"
wrong 2 "smallest workable" --scale-factor 0.01 --host-limit 1000K --disk "$spill"
wrong 2 "1536K for each thread" --scale-factor 0.01 --device-limit 1535K --host-limit 64M --driver sim --work device \
    --threads 1
wrong 2 "1536K for each thread" --scale-factor 0.01 --device-limit 3071K --host-limit 64M --driver sim --work device \
    --threads 2
wrong 2 "without --device-limit" --scale-factor 0.01 --host-limit 64M --work device
wrong 2 "--work gpu" --scale-factor 0.01 --host-limit 64M --work gpu
wrong 2 "a seed comes with --spec 'driver=sim:SEED'" --scale-factor 0.01 --host-limit 64M --driver sim:7
wrong 2 "only a device tier" --scale-factor 0.01 --device-limit 64M --driver sim --disk "$spill"
if [ ! -e /dev/nvidiactl ]; then
    for driver in auto cuda; do
        wrong 2 "no GPU can be used" --scale-factor 0.01 --device-limit 64M --host-limit 64M --driver $driver
        ! grep -q 'driver=sim' "$work/err" || fail "one remedy is enough: $(cat "$work/err")"
    done
    wrong 2 "no GPU can be used" --scale-factor 0.01 --host-limit 64M --driver cuda
fi
wrong 1 "--disk DIR" --scale-factor 0.1 --host-limit 4M
wrong 1 "--disk DIR" --scale-factor 0.1 --device-limit 4M --host-limit 4M --driver sim
wrong 1 "'$work/err' is not a folder" --lineitem "$work/err" --partsupp "$p" --host-limit 64M
wrong 1 "'$work/no/where' is missing" --scale-factor 0.01 --host-limit 64M --write "$work/no/where/tables"
wrong 1 "$work/nowhere" --lineitem "$work/nowhere" --partsupp "$p" --host-limit 64M
wrong 1 "$work/err" --scale-factor 0.05 --host-limit 4M --disk "$work/err"
wrong 1 "quota" --scale-factor 0.1 --host-limit 4M --disk "$spill:1M"
mv "$l/l_quantity" "$l/kept"
wrong 1 "column l_quantity is missing" --lineitem "$l" --partsupp "$p" --host-limit 64M
mv "$l/kept" "$l/l_quantity"
last=$(find "$l/l_quantity" -name 'shard_*' -printf '%f\n' | sort | tail -1)
cp "$l/l_quantity/$last" "$work/$last"
truncate -s -1 "$l/l_quantity/$last"
wrong 1 "$last' is truncated" --lineitem "$l" --partsupp "$p" --host-limit 64M
mv "$work/$last" "$l/l_quantity/$last"
if [ "$(id -u)" -ne 0 ]; then
    chmod 0 "$p/ps_suppkey"
    wrong 1 "$p/ps_suppkey" --lineitem "$l" --partsupp "$p" --host-limit 64M
    chmod 700 "$p/ps_suppkey"
    chmod 500 "$spill"
    wrong 1 "$spill" --scale-factor 0.05 --host-limit 4M --disk "$spill"
    chmod 700 "$spill"
fi
"$join" --help | grep -q "smallest budget" || fail "--help does not name the smallest budget"

# A device that cannot run the engine's functions is a tier only, which is said; and a mistake where it was asked for.
# cuda STATUS ARGUMENTS...
cuda() {
    status=$1
    shift
    runs=$((runs + 1))
    sh "$here/libcuda/run.sh" "$libcuda" "$join" --driver cuda --scale-factor 0.05 --device-limit 64M "$@" --json \
        --verify >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$status" ] || fail "$* on CUDA: exit status $got instead of $status: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$* on CUDA: not one line: $(cat "$work/err")"
}
cuda 0 --host-limit 64M
grep -q "worked on in host memory" "$work/err" || fail "on CUDA: $(cat "$work/err")"
python3 "$here/join_tables.py" check "" "67108864 0 67108864" host <"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
cuda 2 --host-limit 64M --work device
grep -q -e "--driver sim" "$work/err" || fail "on CUDA: $(cat "$work/err")"

# full ARGUMENTS...: what cannot be printed is an error, in one line.
full() {
    runs=$((runs + 1))
    "$join" "$@" >/dev/full 2>"$work/err"
    status=$?
    [ $status -eq 1 ] || fail "$* on a full device: exit status $status"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$* on a full device: not one line: $(cat "$work/err")"
}
full --help
full --scale-factor 0.01 --host-limit 64M
full --scale-factor 0.01 --host-limit 64M --json

echo "$runs runs, $failures failed"
[ $failures -eq 0 ]
