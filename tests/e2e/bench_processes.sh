#!/usr/bin/env bash
# Several processes share the work and the table and end together; if one dies, that is reported.
# The raw measurement leaves a shared pool as it was.
. "$(dirname "$0")/expect.bash"

pool="shm:$scratch/pool"

run bench --processes 2
expect_code 2
expect_err "mem: is memory of one process"
run bench --pool "$pool?size=64m" --processes 64 --threads 17
expect_code 2
expect_err "at most 1024"

# The results are those of all processes.
run put --pool "$pool?size=256m" key value
expect_code 0
run bench --pool "$pool" --index race --keys 3k --ops 2001 --workload load,a,d,insert,delete \
    --processes 2 --threads 2 --depth 2 --raw --json "$scratch/json"
expect_code 0
expect_no_err
expect_out "2 processes, each of 2 threads with 2 operations in flight"
for workload in load a d insert delete; do
    grep -qE "^race +$workload +[0-9,]+ +[0-9]+ % " <<<"$out" || failed "has no row for $workload"
done
expect_out "space: 3,100 keys"
[ "$(grep -c '"processes": 2' "$scratch/json")" -eq 5 ] || failed "does not say so in the JSON"
[ "$(grep -c '"ops": 2001' "$scratch/json")" -eq 4 ] || failed "lost operations"
run get --pool "$pool" key
[ "$out" = value ] || failed "is not what was put"
run pool check "$pool"
expect_code 0

# If they are interrupted, or one is killed, all end.
begin() {
    last="farside bench $*"
    code='' out='' err=''
    rm "$scratch/pool"
    : >"$scratch/out"
    "$FARSIDE" bench --pool "$pool?size=64m" --keys 1k --ops 1g --workload load,c --processes 2 \
        "$@" >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    for _ in $(seq 600); do
        grep -q "^race *load" "$scratch/out" && break
        sleep 0.1
    done
    mapfile -t workers < <(grep -lsE "^PPid:[[:space:]]$pid\$" /proc/[0-9]*/status | cut -d/ -f3)
    [ "${#workers[@]}" -eq 2 ] || failed "does not have two processes"
}

finish() {
    wait "$pid"
    code=$?
    out=$(<"$scratch/out")
    err=$(<"$scratch/err")
    for worker in "${workers[@]}"; do
        kill -0 "$worker" 2>/dev/null && failed "left process $worker behind"
    done
}

set -m
for signal in INT TERM; do
    begin --depth 4
    kill "-$signal" -- "-$pid" # as from a terminal: all of them get it
    finish
    expect_code $((128 + $(kill -l "$signal")))
    expect_err "interrupted"
done

begin --index race
kill -KILL "${workers[1]}"
finish
expect_code 1
expect_err "process ${workers[1]} of the benchmark was killed"

# The same on a memory node.
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: only shm: was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"
memd --size 256m
run bench --pool "ucx://$address" --index race --keys 2k --ops 2k --workload load,a --processes 2 \
    --depth 8 --raw
expect_code 0
expect_no_err
grep -qE "^race +a +[0-9,]+ +[0-9]+ % " <<<"$out" || failed "has no row for a"
run pool check "ucx://$address"
expect_code 0
exit 0
