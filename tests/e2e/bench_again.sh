#!/usr/bin/env bash
# The benchmark can run again and again on a pool that lasts. It drops what it made, and what a
# benchmark that was killed has left. It touches nothing else.
. "$(dirname "$0")/expect.bash"

pool=shm:$scratch/pool
small="--keys 1k --ops 1k --workload load,a"
run put --pool "$pool?size=32m&lease=3000" --table bench-race key value
expect_code 0

tables() { # how many there must be
    run stat "$pool" --json
    expect_code 0
    expect_out "\"tables\": $1,"
}
live() { sed -nE 's/.*"bytes_live": ([0-9]+).*/\1/p' <<<"$out"; }
expect_as_before() {
    tables 1
    expect_out '"clients": 1,'
    [ "$(live)" = "$before" ] || failed "left something in the pool"
}
tables 1
before=$(live)

for options in "" "" "--raw --threads 2 --depth 4" "--processes 2"; do
    # shellcheck disable=SC2086 # several options
    run bench --pool "$pool" $small --json "$scratch/json" $options
    expect_code 0
    expect_no_err
    grep -qE "dropped a table: [0-9,]+ bytes are free again" <<<"$out" || failed "does not say so"
    made=$(indexes | wc -l)
    [[ $options == --raw* ]] && made=$((2 * made))
    [ "$(grep -c '"dropped": true' "$scratch/json")" -eq "$made" ] || failed "dropped too few"
    expect_as_before
done

# The same after an error. The pool is full, and is not afterwards.
run bench --pool "$pool" --keys 1m --workload load --index race
expect_code 1
expect_out "the pool has no memory left"
expect_out "dropped a table"
expect_as_before

begin() { # starts a benchmark that does not end by itself, and waits until it measures
    last="farside bench $*"
    code='' out='' err=''
    : >"$scratch/long"
    "$FARSIDE" bench --pool "$pool" --index race --keys 1k --ops 1g --workload load,c "$@" \
        >"$scratch/long" 2>"$scratch/err" &
    pid=$!
    for _ in $(seq 600); do
        grep -q "^race *load" "$scratch/long" && return
        sleep 0.1
    done
    failed "does not begin"
}
finish() { # a signal
    kill "-$1" "$pid" || failed "ended by itself"
    wait "$pid" 2>/dev/null
    code=$?
    out=$(<"$scratch/long") err=$(<"$scratch/err")
}

# The same after a signal. Another benchmark that runs meanwhile does not take away its table.
set -m
for signal in INT TERM; do
    begin
    # shellcheck disable=SC2086
    run bench --pool "$pool" --index race $small
    expect_code 0
    expect_no_err
    tables 2
    last="farside bench, SIG$signal"
    finish "$signal"
    expect_code $((128 + $(kill -l "$signal")))
    expect_out "dropped a table"
    expect_as_before
done

# A reader that leaves, and a full disk.
"$FARSIDE" bench --pool "$pool" --keys 1k --ops 10k --workload load,a,b,c 2>/dev/null |
    head -n 1 >/dev/null
expect_as_before
last="farside bench >/dev/full"
# shellcheck disable=SC2086
"$FARSIDE" bench --pool "$pool" $small >/dev/full 2>"$scratch/err"
code=$? err=$(<"$scratch/err")
expect_code 1
expect_err "cannot write the output: No space left on device"
expect_as_before
# shellcheck disable=SC2086
run bench --pool "$pool" $small --index race --json /dev/full
expect_code 1
expect_err "cannot write the JSON to '/dev/full'"
expect_as_before

# After it was killed, the next one drops its table.
begin
finish KILL
tables 2
# shellcheck disable=SC2086
run bench --pool "$pool" --index race $small --json "$scratch/json"
expect_code 0
expect_err "which a benchmark that was killed had left"
[ "$(grep -c '"left_over": true' "$scratch/json")" -eq 1 ] || failed "does not say so in the JSON"
run pool check "$pool" --repair # its session is found, when its lease has passed
expect_code 0
expect_as_before

# A table of another machine is named, and left alone. So is one that only looks a bit like it.
foreign=farside-bench-000000000001-1-1-race
run put --pool "$pool" --table "$foreign" key value
run put --pool "$pool" --table farside-bench-mine key value
# shellcheck disable=SC2086
run bench --pool "$pool" --index race $small
expect_code 0
expect_err "'$foreign' is of a benchmark on another machine"
expect_err "farside table drop --pool '$pool' $foreign"
[[ $err != *farside-bench-mine* ]] || failed "takes another table for one of its own"
tables 3

# On a terminal, that is said once, before the results. Nothing but these stays on the screen: a line of
# progress is shorter than the terminal is wide, and is erased.
if script -qec true /dev/null >/dev/null 2>&1; then
    last="farside bench, on a terminal"
    code='' err=''
    script -qec "stty cols 60 && '$FARSIDE' bench --pool '$pool' $small --index race,shard --threads 1,2" \
        /dev/null </dev/null >"$scratch/screen" 2>&1
    out=$(tr '\r' '\n' <"$scratch/screen")
    [ "$(grep -c "is of a benchmark on another machine" <<<"$out")" -eq 1 ] ||
        failed "does not say once that another machine's table is there"
    grep "another machine\|^race" <<<"$out" | head -n 1 | grep -q "another machine" ||
        failed "says so after results"
    progress=$(grep $'^\033\\[K.*\\[[#.]' <<<"$out")
    [ -n "$progress" ] || failed "shows no progress"
    ! grep -qE '.{63}' <<<"$progress" || failed "shows a line of progress that wraps"
    out=${out##*$'\033[K'}
    [[ $out == *"dropped a table"* && $out != *"[#"* && $out != *"[."* ]] || failed "does not end with results"
fi

# Tables that are kept.
# shellcheck disable=SC2086
run bench --pool "$pool" --index shard $small --keep
expect_code 0
[[ $out != *dropped* ]] || failed "drops a table that is to be kept"
run stat "$pool" --table bench-shard --json
expect_code 0
expect_out '"keys": 1000'
# shellcheck disable=SC2086
run bench --pool "$pool" --index shard $small --keep
expect_code 4
expect_err "table 'bench-shard' already exists"
run get --pool "$pool" --table bench-race key
[ "$out" = value ] || failed "is not what was put"

# The same on a memory node.
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: only shm: was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"
memd --size 64m
pool=ucx://$address?lease=3000
run put --pool "$pool" key value
# shellcheck disable=SC2086
run bench --pool "$pool" $small --depth 8
expect_code 0
tables 1
before=$(live) # with the journals that sessions of this depth need, which stay in the pool
for _ in 1 2; do
    # shellcheck disable=SC2086
    run bench --pool "$pool" $small --depth 8
    expect_code 0
    expect_as_before
done
begin --depth 8
finish INT
expect_out "dropped a table"
expect_as_before
begin
finish KILL
# shellcheck disable=SC2086
run bench --pool "$pool" --index race $small
expect_code 0
expect_err "which a benchmark that was killed had left"
run pool check "$pool" --repair # its session is found, when its lease has passed
expect_code 0
expect_as_before
exit 0
