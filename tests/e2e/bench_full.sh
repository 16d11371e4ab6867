#!/usr/bin/env bash
# The benchmark stops when the pool is full or a memory node is lost. It keeps what it has measured,
# and says what to do.
. "$(dirname "$0")/expect.bash"

# The load does not fit: no other workload runs on that index, but the next index has its turn.
for options in "" "--threads 2 --depth 4"; do
    # shellcheck disable=SC2086 # several options
    run bench --pool "mem:?size=1m" --keys 20k --ops 1k --workload load,c --json "$scratch/json" $options
    expect_code 1
    expect_no_err
    expect_out "of 20,000 operations: the pool has no memory left"
    expect_out "hint: make the pool larger (size=)"
    for index in $(indexes); do
        grep -qE "^$index +load " <<<"$out" || failed "has no row for the load of $index"
    done
    [ "$(grep -c '"stopped_by": "FAR_POOL_FULL"' "$scratch/json")" -eq "$(indexes | wc -l)" ] ||
        failed "does not say so in the JSON"
    grep -q '"workload": "c"' "$scratch/json" && failed "went on with a table that is not complete"
    grep -q '"ops_planned": 20000' "$scratch/json" || failed "does not say what was planned"
done

# What fits is measured.
run bench --pool "mem:?size=2m" --index race --keys 10k --ops 40k --workload load,c,insert,c
expect_code 1
grep -qE "^race +c " <<<"$out" || failed "lost what it had measured"
expect_out "insert stopped after "
[ "$(grep -cE "^race +c " <<<"$out")" -eq 1 ] || failed "went on"

# Keys that are not measured do not fit.
run bench --pool "mem:?size=1m" --keys 20k --ops 1k --workload c
expect_code 1
expect_err "the pool has no memory left (loading the keys, after "
expect_err "hint: make the pool larger"

# Several processes stop together.
run bench --pool "shm:$scratch/pool?size=2m" --index race --keys 40k --workload load --processes 2
expect_code 1
expect_out "of 40,000 operations: the pool has no memory left"

# A node that is lost.
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: no node was lost"
    exit 0
fi
. "$(dirname "$0")/memd.bash"
for depth in 1 8; do
    memd --size 64m
    last="farside bench --depth $depth, and its node is killed"
    : >"$scratch/out"
    "$FARSIDE" bench --pool "ucx://$address" --keys 1k --ops 1g \
        --workload load,c,b --depth "$depth" --json "$scratch/json" \
        >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    for _ in $(seq 600); do
        grep -q "^race *load" "$scratch/out" && break
        sleep 0.1
    done
    sleep 0.2
    end_memd KILL "$node"
    wait "$pid"
    code=$? out=$(<"$scratch/out") err=$(<"$scratch/err")
    expect_code 1
    grep -qE "^race +load " <<<"$out" || failed "lost what it had measured"
    grep -qE "^shard " <<<"$out" && failed "went on with the next index"
    # The node may be killed before the first operation of c.
    if grep -q '"workload": "c"' "$scratch/json"; then
        expect_out "c stopped after "
        expect_out "hint: see whether the memory nodes run"
        expect_out "$address"
    else
        expect_err "hint: see whether the memory nodes run"
    fi
    grep -qE "^race +b " <<<"$out" && failed "went on with the next workload"
done
exit 0
