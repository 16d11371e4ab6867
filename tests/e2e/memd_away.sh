#!/usr/bin/env bash
# A pool on two memory nodes of which one is killed: programs that open the pool meanwhile read what is on the other
# one, and say which node is away. When it is back with its contents, everything is there; another one is refused.
. "$(dirname "$0")/expect.bash"
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: nothing was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"

memd --file "$scratch/first" --size 16m
first=$node at_first=$address
memd --file "$scratch/second" --size 16m
second=$node at_second=$address
pool="ucx://$at_first,$at_second?timeout=2000&lease=2000"

for index in race chime; do
    echo "{\"table\":\"$index\",\"index\":\"$index\",\"tuning\":\"$([ $index = race ] && echo groups=2)\"}"
    for i in $(seq 200); do echo "{\"key\":\"key$i\",\"value\":\"value$i\"}"; done
done >"$scratch/pairs"
run_leased load --pool "$pool" "$scratch/pairs"
expect_code 0
run_leased dump --pool "$pool" "$scratch/whole"
expect_code 0

# The second node is killed.
end_memd KILL "$second"
is_away="node 1 ($at_second) is away"
got=0 missed=0
for i in $(seq 200); do
    [ "$i" -gt 12 ] && [ $got -gt 0 ] && [ $missed -gt 0 ] && break
    run_leased get --pool "$pool" --table race "key$i"
    expect_err "$is_away"
    if [ "$code" = 0 ]; then
        [ "$out" = "value$i" ] || failed "is not what was put"
        got=$((got + 1))
    else
        expect_err "cannot be reached"
        missed=$((missed + 1))
    fi
done
[ $got -gt 0 ] && [ $missed -gt 0 ] || failed "$got keys were read and $missed not, though they are on two nodes"
run_leased put --pool "$pool" --table new key value
expect_code 1
expect_err "cannot be reached"
run_leased stat --pool "$pool"
expect_code 1
expect_err "$is_away"
expect_out "node $at_first"
run_leased pool check "$pool"
expect_code 3
expect_out "missing: node 1 ($at_second) is away"
run_leased pool check "$pool" --repair
expect_code 3
expect_err "$at_second"

# A dump lacks what is on the node, says so, and does not replace a whole one.
cp "$scratch/whole" "$scratch/dump"
run_leased dump --pool "$pool" "$scratch/dump"
expect_code 1
expect_err "$is_away"
expect_err "dump.incomplete' is incomplete"
cmp -s "$scratch/whole" "$scratch/dump" || failed "has changed a whole dump"
run load --check "$scratch/dump.incomplete"
expect_code 0
run_leased dump --pool "$pool" --table race --json -
expect_code 1
pairs=$(grep -c '"key"' <<<"$out")
[ "$pairs" -gt 0 ] && [ "$pairs" -lt 200 ] || failed "has $pairs pairs of 200"

# It comes back empty, and is refused; and with its contents.
PORT=${at_second##*:} memd --size 16m
run get --pool "$pool" --table race key1
expect_code 1
expect_err "node 1 holds no Farside pool"
end_memd KILL "$node"
PORT=${at_second##*:} memd --file "$scratch/second" --size 16m
for i in $(seq 12); do
    run_leased get --pool "$pool" --table race "key$i"
    expect_code 0
    [ "$out" = "value$i" ] || failed "is not what was put"
done
run_leased pool check "$pool" --repair
expect_code 0

# Without the first node there is no pool.
end_memd KILL "$first"
run get --pool "$pool" --table race key1
expect_code 1
expect_err "this is the first node: the pool needs it to be opened"
