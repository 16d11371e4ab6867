#!/usr/bin/env bash
# exists, insert, update and incr: what they change, what they refuse, and how their exit status tells.
. "$(dirname "$0")/expect.bash"

export FARSIDE_POOL=shm:$scratch/pool

expect_value() { # KEY VALUE
    run get "$1"
    expect_code 0
    [ "$out" = "$2" ] || failed "the value is not $2"
}

run stat --pool "$FARSIDE_POOL?size=16m"
expect_code 0
run exists key
expect_code 3
expect_err "no such table"
run update key value
expect_code 3
expect_err "cannot open the table 'default': no such table"

# insert adds a key once. The value may come from the standard input.
leaks=1
run insert key first
expect_code 0
expect_no_out
expect_no_err
leaks=0
run insert key second
expect_code 4
expect_no_out
expect_err "farside insert: key 'key': the key already exists"
expect_value key first
run insert piped - <<<"from the input"
expect_code 0
expect_value piped "from the input"
run insert piped </dev/null
expect_code 4
expect_value piped "from the input"

# update changes what exists.
run update key third
expect_code 0
expect_value key third
run update none value
expect_code 3
expect_err "farside update: key 'none': no such key"

# exists says it by its status.
run exists key
expect_code 0
expect_no_out
expect_no_err
run exists none
expect_code 3
expect_no_out
expect_no_err
run exists --hex 6b6579
expect_code 0
run del none
expect_code 3
expect_err "no such key"
run get none
expect_code 3

# Values are bytes: any of them comes back, and the limit holds before all is read.
head -c 300000 /dev/urandom >"$scratch/bytes"
"$FARSIDE" insert bytes <"$scratch/bytes" || failed "cannot insert bytes"
"$FARSIDE" get bytes | cmp - "$scratch/bytes" || failed "other bytes come back"
last="farside update bytes, endless input" out='' err=''
err=$("$FARSIDE" update bytes 2>&1 </dev/zero)
code=$?
expect_code 1
expect_err "longer than 4194304 bytes"
"$FARSIDE" get bytes | cmp - "$scratch/bytes" || failed "the value has changed"

# incr
leaks=1
run incr --table counts n
expect_code 0
[ "$out" = 1 ] || failed "does not begin with 0"
leaks=0
sum=1
for by in 41 -50 0 9223372036854775807 -9223372036854775807; do
    run incr --table counts n "$by"
    expect_code 0
    sum=$((sum + by))
    [ "$out" = "$sum" ] || failed "the sum is not $sum"
    run get --table counts n
    [ "$out" = "$sum" ] || failed "does not keep the sum"
done
run incr --table counts -- n -1
expect_code 0
run put limit -- -9223372036854775808
run incr limit -1
expect_code 1
expect_no_out
expect_err "farside incr: key 'limit' is unchanged: the sum does not fit into 64 bits"
expect_value limit -9223372036854775808
for value in x '' - 1.5 ' 1' 1x 99999999999999999999 "$(head -c 4000 /dev/zero | tr '\0' 1)"; do
    run put -- odd "$value" </dev/null
    run incr odd
    expect_code 1
    expect_no_out
    expect_err "is unchanged: its value is not a decimal number of 64 bits"
    [ "$value" = - ] || expect_value odd "$value"
done

# Several processes at once: no increment is lost.
for _ in 1 2 3; do
    for _ in $(seq 20); do "$FARSIDE" incr --table counts together 2 || echo failed; done >"$scratch/sums" &
done
wait
run get --table counts together
[ "$out" = 120 ] || failed "lost increments"
run pool check
expect_code 0
