#!/usr/bin/env bash
# get, put, del and stat on mem:, a pool that is gone when the command ends.
. "$(dirname "$0")/expect.bash"

note="a mem: pool starts empty and is gone when this process ends"

leaks=1
run put --pool mem: key value
expect_code 0
expect_no_out
expect_err "$note"

leaks=0

# A value from the standard input, and one that is too long.
run put --pool mem: --table people key - <<<"from the input"
expect_code 0
run put --pool mem: key </dev/null
expect_code 0
run put --pool mem: --hex 00ff00 value
expect_code 0
head -c 4194305 /dev/zero >"$scratch/big"
run put --pool mem: key <"$scratch/big"
expect_code 1
expect_err "longer than 4194304 bytes"
head -c 4194304 /dev/zero >"$scratch/big"
run put --pool mem: key <"$scratch/big"
expect_code 0

# A key that begins with - is given after --.
run put --pool mem: -- -key value
expect_code 0

for command in get del; do
    run "$command" --pool mem: key
    expect_code 3
    expect_no_out
    expect_err "cannot open the table 'default': no such table"
done

run stat --pool "mem:?size=64m&nodes=2&clients=7"
expect_code 0
expect_err "$note"
expect_out "pool 'mem:?size=64m&nodes=2&clients=7': 2 nodes"
expect_out "134217728 bytes  (128.0 MiB)"
expect_out "1 of 7"

# A terminal gets no control characters of a value; a pipe gets the value as it is.
if script -qec true /dev/null >/dev/null 2>&1; then
    pool="shm:$scratch/pool?size=16m"
    printf 'a\033[2Jb\nc\\d\xff' | run put --pool "$pool" key -
    expect_code 0
    last="farside get, on a terminal" err=
    out=$(script -qec "'$FARSIDE' get --pool '$pool' key" /dev/null </dev/null | tr -d '\r')
    [ "$out" = 'a\x1b[2Jb\nc\\d\xff' ] || failed "is not escaped"
    [ "$("$FARSIDE" get --pool "$pool" key | od -An -tx1 | tr -d ' \n')" = 611b5b324a620a635c64ff ] ||
        failed "is changed in a pipe"
fi

run stat --pool mem: --table people
expect_code 3
expect_err "no such table"

leaks=1
run stat --pool "mem:?size=64m" --json
expect_code 0
expect_out '"bytes_total": 67108864'
expect_out '"tables": []'
