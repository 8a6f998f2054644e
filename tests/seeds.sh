#!/bin/sh
# Runs test programs whose simulated devices follow the adversarial schedules of seeds FIRST to LAST, one after another,
# and names the program and the seed of each failure.
#
# usage: seeds.sh FIRST LAST PROGRAM...
set -eu
first=$1
last=$2
shift 2

said=$(mktemp)
trap 'rm -f "$said"' EXIT
trap 'exit 130' INT TERM

status=0
for program; do
    seed=$first
    while [ "$seed" -le "$last" ]; do
        if ! SPILLWAY_SIM_SEED=$seed "$program" >"$said" 2>&1; then
            status=1
            echo "FAIL: SPILLWAY_SIM_SEED=$seed $program"
            tail -n 20 "$said" | sed 's/^/    /'
        fi
        seed=$((seed + 1))
    done
done
[ $status = 0 ] && echo "$# programs with seeds $first to $last: no difference"
exit $status
