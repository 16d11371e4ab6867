#!/usr/bin/env bash
# An experiment on a testbed from two machines, as processes of this one: machine 0 keeps the results,
# and tells the other one what is missing.
. "$(dirname "$0")/expect.bash"

cd "$scratch" || exit 1
pool="shm:$scratch/pool?size=1g"

run reproduce coroutines --machines 2 --rank 0
expect_code 2
expect_err "--machines needs --testbed URI"
run reproduce coroutines --testbed mem: --machines 2 --rank 0
expect_code 2
expect_err "mem: is one of this process"

# both OPTION...
both() {
    "$FARSIDE" reproduce coroutines --quick --testbed "$pool" --machines 2 --rank 1 --out other "$@" \
        >other.out 2>other.err &
    run reproduce coroutines --quick --testbed "$pool" --machines 2 --rank 0 "$@"
    expect_code 0
    expect_out "== coroutines: "
    wait $! || failed "does not end well at the other machine: $(<other.err)"
    [ ! -s other.out ] || failed "prints results twice"
    grep -q "machine 1 of 2: machine 0 ($(hostname)) has the results" other.err || failed "does not say where they are"
    [ ! -e other ] || failed "keeps results twice"
}
both
count=$(ls reproduction/coroutines | wc -l)
[ "$count" -gt 1 ] || failed "keeps no results"

touch -d 2001-01-01 reproduction/coroutines/*.json
first=$(ls reproduction/coroutines | head -1)
rm "reproduction/coroutines/$first"
both --resume
[ "$(find reproduction -newermt 2002-01-01 -name '*.json')" = "reproduction/coroutines/$first" ] ||
    failed "measured other things again"
grep -q '"machines": 2' "reproduction/coroutines/$first" || failed "was measured by one machine"
run pool check "$pool"
expect_code 0
exit 0
