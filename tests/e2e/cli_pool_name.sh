#!/usr/bin/env bash
# A command finds its pool by --pool, else in the environment, else it takes its default.
. "$(dirname "$0")/expect.bash"

one=shm:$scratch/one
two=shm:$scratch/two
run put --pool "$one?size=16m" key one
expect_code 0
run put --pool "$two?size=16m" key two
expect_code 0

export FARSIDE_POOL=$one
run get key
expect_code 0
[ "$out" = one ] || failed "does not take the environment's pool"
run get --pool "$two" key
[ "$out" = two ] || failed "does not prefer --pool"
for command in stat "pool check"; do
    # shellcheck disable=SC2086 # a command and its subcommand
    run $command
    expect_code 0
    expect_out "$one"
    # shellcheck disable=SC2086
    run $command "$two"
    expect_code 0
    expect_out "$two"
    # shellcheck disable=SC2086
    run $command --pool "$two"
    expect_code 0
    expect_out "$two"
    # shellcheck disable=SC2086
    run $command --pool "$one" "$two"
    expect_code 2
    expect_err "unexpected argument '$two'"
done
run bench --index race --keys 100 --ops 100 --workload load --keep
expect_code 0
run list --table bench-race --keys-only
expect_code 0
[ "$(wc -l <<<"$out")" = 100 ] || failed "the benchmark did not use the environment's pool"

# Empty means unset. The benchmark then makes a pool of its own.
export FARSIDE_POOL=
run get key
expect_code 2
expect_err "missing option --pool URI, and FARSIDE_POOL is not set"
unset FARSIDE_POOL
run get key
expect_code 2
expect_err "missing option --pool URI, and FARSIDE_POOL is not set"
run bench --index race --keys 100 --ops 100 --workload load
expect_code 0

# A pool in the environment that does not exist is refused like any other.
FARSIDE_POOL=shm:$scratch/none run get key
expect_code 1
expect_err "cannot open the pool 'shm:$scratch/none'"
FARSIDE_POOL=nonsense run get key
expect_code 2
expect_err "the pool URI is not understood"
