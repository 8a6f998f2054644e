#!/bin/sh
# The main job, from a bare checkout: sets up this machine, builds in build/, and joins TPC-H's LINEITEM and PARTSUPP at
# scale factor 2, held in Spillway's buffers, with memory budgets under a quarter of what they hold. Ends with the
# answer, its verification by another algorithm, and a table of what moved between the tiers.
#
# The spill folder lies in $TMPDIR, else /var/tmp, and is removed at the end, however the job ends. Some 240 MiB go there.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
parent=${TMPDIR:-/var/tmp}
scale_factor=2
needed_mib=1024

free_mib=$(df -Pk -- "$parent" 2>/dev/null | awk 'NR == 2 { printf "%d", $4 / 1024 }')
if [ "${free_mib:-0}" -lt $needed_mib ]; then
    echo "demo: $parent has ${free_mib:-no} MiB free, and the demo wants $needed_mib MiB to spill to." >&2
    echo "demo: free some, or name a folder on another disk: TMPDIR=/folder sh $0" >&2
    exit 1
fi

sh "$root/tests/setup.sh" bench/bench_join

spill=$(mktemp -d "$parent/spillway-demo.XXXXXX")
trap 'rm -rf "$spill"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# meta= is the budget of handles and bookkeeping: memory too, and counted below. The quota, none, is said because a colon
# may be in the folder's name.
report=$("$root/build/bench/bench_join" --scale-factor $scale_factor --spec meta=4M --pinned-limit 16M \
    --host-limit 32M --disk "$spill:0" --threads 2 --verify)
printf '%s\n' "$report"
printf '%s\n' "$report" | awk '
    $1 == "pinned_host" || $1 == "host" || $1 == "meta" { if ($2 != "->") budgets += $2 }
    $1 == "input" { held = $2 }
    END { printf "budget  %.0f MiB of memory over all tiers, %.0f %% of the tables\n", budgets, 100 * budgets / held }'
