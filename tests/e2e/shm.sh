#!/usr/bin/env bash
# A pool in shared memory keeps what one command does for the next, until it is removed.
. "$(dirname "$0")/expect.bash"

name=e2e-$$
trap 'rm -rf "$scratch" "/dev/shm/farside-$name"' EXIT

for place in "$name" "$scratch/pool"; do
    run get --pool "shm:$place" key
    expect_code 1
    expect_err "give size= in the URI to create it"

    run put --pool "shm:$place?size=32m&nodes=2" --table people key value
    expect_code 0
    expect_no_out
    expect_no_err
    run get --pool "shm:$place" --table people key
    expect_code 0
    expect_no_err
    [ "$out" = value ] || failed "is not what was put"
    run del --pool "shm:$place" --table people key
    expect_code 0
    run get --pool "shm:$place" --table people key
    expect_code 3

    # A command that asks for another size is refused, and the pool stays as it is.
    run put --pool "shm:$place?size=64m" --table people key value
    expect_code 2
    expect_err "was made with size=33554432&nodes=2"

    # Two processes at the same time.
    for half in 1 2; do
        for i in $(seq 5); do
            "$FARSIDE" put --pool "shm:$place" --table people "$half-$i" "$i" || exit 1
        done &
    done
    wait %1 && wait %2 || failed "a put failed"
    run stat --pool "shm:$place" --json
    expect_code 0
    expect_out '"keys": 10'
    expect_out '"nodes": 2'

    run bench --pool "shm:$place" --keys 2k --ops 1k --threads 2 --workload load,a
    expect_code 0

    # A dropped table is gone, and its name can be reused.
    run table drop --pool "shm:$place" --index race people
    expect_code 0
    expect_no_out
    expect_no_err
    run table drop --pool "shm:$place" people
    expect_code 3
    expect_err "cannot open the table 'people': no such table"
    run get --pool "shm:$place" --table people 1-1
    expect_code 3
    run put --pool "shm:$place" --table people key value
    expect_code 0
    run get --pool "shm:$place" --table people 1-1
    expect_code 3
    expect_err "no such key"
    run pool check "shm:$place"
    expect_code 0
    expect_out "clean"
done

# A file that is not a pool is left alone.
echo "a text of mine" >"$scratch/text"
run put --pool "shm:$scratch/text?size=32m" key value
expect_code 1
expect_err "something else"
[ "$(<"$scratch/text")" = "a text of mine" ] || failed "changed the file"
