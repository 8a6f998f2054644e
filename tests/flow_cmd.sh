#!/bin/sh
# The command `spillway` and bench_replay from end to end: what they print, exit statuses, carets, and the figures that
# the logs in ../shared/traces are to reach, where these lie beside the checkout.
#
# usage: flow_cmd.sh SPILLWAY BENCH_REPLAY
set -u
spillway=$1
replay=$2
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/flow_cmd.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
runs=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# says STATUS TEXT COMMAND...: the command ends with that status, and a line of what it says, on standard output when
# the status is 0 and else on standard error, is TEXT or begins with it.
says() {
    status=$1 text=$2
    shift 2
    runs=$((runs + 1))
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    stream=out
    [ "$status" -eq 0 ] || stream=err
    [ $got -eq "$status" ] || fail "$*: exit status $got instead of $status: $(cat "$work/err")"
    if ! TEXT=$text awk 'index($0, ENVIRON["TEXT"]) == 1 { found = 1 } END { exit !found }' "$work/$stream"; then
        fail "$*: no line begins with '$text': $(cat "$work/$stream")"
    fi
    [ "$status" -eq 0 ] || [ ! -s "$work/out" ] || fail "$*: output in spite of the error"
    [ "$status" -ne 0 ] || [ ! -s "$work/err" ] || fail "$*: $(cat "$work/err")"
}

# also TEXT: another line of the same output.
also() {
    TEXT=$1 awk 'index($0, ENVIRON["TEXT"]) == 1 { found = 1 } END { exit !found }' "$work/$stream" ||
        fail "no line begins with '$1': $(cat "$work/$stream")"
}

# caret STRING COLUMN: the string is refused, and the caret stands under that column (from 0) of what is shown of it.
caret() {
    says 2 'spillway spec: configuration string, byte ' "$spillway" spec "$1"
    line=$(printf '%*s^' "$(($2 + 2))" '')
    [ "$(tail -n 1 "$work/err")" = "$line" ] || fail "spec '$1': caret not at $2: $(cat "$work/err")"
}

# The command itself
says 0 'usage: spillway spec STRING' "$spillway" --help
says 0 'usage: spillway spec STRING' "$spillway" spec --help
says 0 'usage: spillway spec STRING' "$spillway" plan --help
says 0 "spillway 0.1.0" "$spillway" --version
says 2 'spillway: a subcommand is wanted' "$spillway"
says 2 "spillway: no subcommand 'frobnicate'" "$spillway" frobnicate
if [ -e /dev/full ]; then
    "$spillway" --help >/dev/full 2>"$work/err"
    [ $? -eq 1 ] || fail "a full output device goes unnoticed"
fi

# spec
says 0 'device: 3 pools, 13958643712 bytes (13 GiB)' "$spillway" spec \
    '10737418240,2147483648:20971520,1073741824:2097152'
also '  pool 0    10737418240 bytes (10 GiB)           requests of any size'
also '  pool 2    1073741824 bytes (1 GiB)             requests up to 2097152 bytes (2 MiB)'
also '  a request of 2097152 bytes (2 MiB)                pools 2, then 1, then 0'
also '  a request of 20971521 bytes (20 MiB)              pool 0'
also '  a request of 10737418241 bytes (10 GiB)           too big: no pool can ever hold it'
also '  device=10G,2G:20M,1G:2M'
says 0 'pinned_host: 2 pools, 73014444032 bytes (68 GiB)' "$spillway" spec \
    'pinned=64G,4G:2M; host=128G; disk=/nvme0/spill:500G,/nvme1/spill; verify=0; meta=1M'
also 'host: 1 pool, 137438953472 bytes (128 GiB)'
also 'disk: 2 folders, as much as the file systems have free'
also '  /nvme0/spill  536870912000 bytes (500 GiB)'
also '  verify       0: off'
also '  meta         1048576 bytes (1 MiB)'
says 2 'spillway spec: one configuration string is wanted' "$spillway" spec
says 2 'spillway spec: one configuration string is wanted' "$spillway" spec 1024 1024
says 2 'spillway spec: configuration string, byte 5: expected a pool size in bytes, found "x"' "$spillway" spec 1024,x
says 2 'spillway spec: a model (model=) is of the simulated device, and the driver is auto: add driver=sim' \
    "$spillway" spec 'device=20M; model=b200'
says 2 'spillway spec: the pools of device= have 209715200 bytes together, and the memory of model= is 175781250 bytes' \
    "$spillway" spec 'device=200M; driver=sim; model=b200/1024'
says 0 '  driver       sim, device 0, adversarial schedule 7' "$spillway" spec 'device=1M; driver=sim:7; model=b200/1024'
also '    without effect but for the memory: an adversarial schedule knows no time'
caret '' 0
caret '10G' 2
caret '1024,' 5
caret 'device=10G; hostt=3G' 12
caret "$(printf 'device=1G;\thost=1G')" 10
caret "$(printf '1024,%.0s' $(seq 30))1G" 63

# Logs, in each form
cat >"$work/rmm.csv" <<'END'
Thread,Time,Action,Pointer,Size,Stream
1,12:00:00.000001,allocate,0x1000,1048576,0x0
1,12:00:00:000002,allocate,0x2000,2097152,0x0
1,12:00:00.000003,free,0x1000,1048576,(nil)
1,12:00:00.000004,allocate,0x3000,1048576,0x0
1,12:00:00.000005,allocate failure,(nil),99999999,0x0
1,12:00:00.000006,free,0xffff,4096,0x0
END
sed 's/^[^,]*,//' "$work/rmm.csv" >"$work/old.csv"
cat >"$work/umpire.json" <<'END'
{ "event": "allocate", "payload": { "allocator_ref": "0x1", "size": 1048576 } }
{ "event": "allocate", "payload": { "allocator_ref": "0x1", "size": 1048576 }, "result": { "memory_ptr": "0x10" } }
{ "event": "reallocate", "payload": { "ptr": "0x10", "size": 3145728 }, "result": { "memory_ptr": "0x20" } }
{ "event": "deallocate", "payload": { "allocator_ref": "0x1", "memory_ptr": "0x20" } }
END
cat >"$work/own.csv" <<'END'
time_ns,thread,action,place,block,bytes
0,1,alloc,host,1,1048576
10,1,alloc,device,1,2097152
20,1,free,host,1,1048576
30,1,alloc,disk,2,4096
END

# json FILTER WANTED COMMAND...: the command prints one JSON object, of which FILTER gives WANTED.
json() {
    filter=$1 wanted=$2
    shift 2
    runs=$((runs + 1))
    "$@" >"$work/out" 2>"$work/err" || fail "$*: $(cat "$work/err")"
    got=$(jq -c "$filter" "$work/out")
    [ "$got" = "$wanted" ] || fail "$*: $filter is $got instead of $wanted"
}

figures='[.events, .peak_live_bytes, .range_bytes, .failures, .moved_bytes]'
json keys_unsorted '["events","peak_live_bytes","range_bytes","ratio","failures","moved_bytes","ns_per_op"]' \
    "$replay" "$work/rmm.csv" --json
json "$figures" '[6,3145728,3145728,0,0]' "$replay" "$work/rmm.csv" --json
json "$figures" '[6,3145728,3145728,0,0]' "$replay" "$work/old.csv" --json
json "$figures" '[3,3145728,3145728,0,0]' "$replay" "$work/umpire.json" --json
json "$figures" '[2,1048576,1048576,0,0]' "$replay" "$work/own.csv" --place host --json
json "$figures" '[6,3145728,1048576,1,0]' "$replay" "$work/rmm.csv" --capacity 2047K --json
json "$figures" '[6,3145728,3145728,0,0]' "$replay" "$work/rmm.csv" --spec '2097152,1048576:1048576' --json
json .ratio 1 "$replay" "$work/rmm.csv" --json
says 0 'failures   0 of 3 requests; 0 fell to a larger pool' "$replay" "$work/rmm.csv"
also '           1 frees of unknown pointers, 0 pointers allocated anew without a free, 1 logged failures'
json '[.spec, .range_bytes, .single_range_bytes]' '["3145728",3145728,3145728]' "$spillway" plan "$work/rmm.csv" --json
json '[.spec, .pools]' '["device=0; host=1M",1]' "$spillway" plan "$work/own.csv" --place host --json
says 0 'spec     3145728' "$spillway" plan "$work/rmm.csv" --pools 1
also 'single   3145728 bytes (3 MiB) in one pool: range/peak 1.000'

# Wrong arguments and logs
says 2 "bench_replay: $work/own.csv: line 3: expected events of host only, found device" "$replay" "$work/own.csv"
says 2 "spillway plan: $work/own.csv: line 3: expected events of host only" "$spillway" plan "$work/own.csv"
says 2 "spillway plan: $work/own.csv: a log of disk: only memory" "$spillway" plan "$work/own.csv" --place disk
says 2 'bench_replay: --spec has no pools of the log' "$replay" "$work/own.csv" --place host --spec 1048576
says 2 'bench_replay: --spec: configuration string, byte 1' "$replay" "$work/rmm.csv" --spec 1x
says 2 'bench_replay: --spec gives the sizes' "$replay" "$work/rmm.csv" --spec 1048576 --capacity 1M
says 2 'bench_replay: --capacity wants bytes' "$replay" "$work/rmm.csv" --capacity 12Q
says 2 'bench_replay: unknown argument' "$replay" "$work/rmm.csv" --frobnicate
says 2 'bench_replay: the file of an allocation log is wanted' "$replay" --json
says 2 'bench_replay: a value is wanted' "$replay" --spec
says 2 'spillway plan: --pools 129' "$spillway" plan "$work/rmm.csv" --pools 129
says 2 'spillway plan: --pools 0' "$spillway" plan "$work/rmm.csv" --pools 0
says 2 'spillway plan: the file of an allocation log is wanted' "$spillway" plan
says 2 "spillway plan: $work/none: cannot be opened" "$spillway" plan "$work/none"
says 2 "bench_replay: $work: cannot be read" "$replay" "$work"
for program in "$replay" "$spillway plan"; do
    name=bench_replay
    [ "$program" = "$replay" ] || name='spillway plan'
    # wrong LINE, TEXT, and the log on standard input
    wrong() {
        cat >"$work/wrong"
        # shellcheck disable=SC2086 # a program and its subcommand
        says 2 "$name: $work/wrong: line $1: expected $2" $program "$work/wrong"
    }
    wrong 3 'a size in bytes, found "64K"' <<'END'
Thread,Time,Action,Pointer,Size,Stream
1,12:00:00.000001,allocate,0x1000,64,0x0
1,12:00:00.000001,allocate,0x1000,64K,0x0
END
    wrong 2 'at most 2^50 live bytes' <<'END'
Time,Action,Pointer,Size,Stream
12:00:00.000001,allocate,0x1000,18446744073709551615,0x0
END
    wrong 1 'a header' <<'END'
this is no log
END
    wrong 2 'a JSON object' <<'END'
{ "event": "version" }
truncated
END
    wrong 1 'an allocation log' </dev/null
done

# What the logs are to reach, on average.
logs=0
planned=0
movable=0
for log in "$root"/../shared/traces/*.csv; do
    [ -e "$log" ] || continue
    logs=$((logs + 1))
    spec=$("$spillway" plan "$log" --json | jq -r .spec) || fail "plan $log"
    "$replay" "$log" --spec "$spec" --json >"$work/out" || fail "bench_replay $log --spec $spec"
    [ "$(jq .failures "$work/out")" = 0 ] || fail "$log: requests fail with the planned $spec"
    sum=$(echo "$spec" | tr ',' '\n' | awk -F: '{ sum += $1 } END { printf "%.0f", sum }')
    ratio=$(jq "$sum / .peak_live_bytes" "$work/out")
    moved=$("$replay" "$log" --movable --json | tee "$work/out" | jq .ratio)
    [ "$(jq '.failures == 0 and .moved_bytes > 0' "$work/out")" = true ] || fail "$log --movable: $(cat "$work/out")"
    single=$("$replay" "$log" --json | jq .ratio)
    echo "$(basename "$log"): one pool $single, planned $ratio, movable $moved ($(jq .moved_bytes "$work/out") moved)"
    planned=$(echo "$planned $ratio" | awk '{ print $1 + $2 }')
    movable=$(echo "$movable $moved" | awk '{ print $1 + $2 }')
done
if [ $logs -eq 0 ]; then
    echo "SKIPPED: figures of the logs: ../shared/traces is not there"
else
    echo "$planned $movable" | awk -v n=$logs '{ printf "mean: planned %.4f, movable %.4f\n", $1 / n, $2 / n
        exit !($1 / n <= 1.35 && $2 / n <= 1.05) }' || fail "the logs' figures are above 1.35 and 1.05"
fi

echo "$runs runs, $failures failed"
[ $failures -eq 0 ]
