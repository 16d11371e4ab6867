#!/usr/bin/env bash
# A signal ends the benchmark. It shows the results so far, and the exit status tells the signal.
. "$(dirname "$0")/expect.bash"

interrupted() { # a signal, then more arguments; far more work than there is time for
    local signal=$1
    shift
    last="farside bench $*, $signal"
    code='' out='' err=''
    : >"$scratch/out"
    "$FARSIDE" bench --keys 1k --ops 1g --workload load,c,b "$@" >"$scratch/out" 2>"$scratch/err" &
    local pid=$!
    # Once the row of the first workload is printed, the second one runs.
    for _ in $(seq 600); do
        grep -q "^race *load" "$scratch/out" && break
        sleep 0.1
    done
    kill "-$signal" "$pid" || failed "ended by itself"
    wait "$pid"
    code=$?
    out=$(<"$scratch/out")
    err=$(<"$scratch/err")
}

# A script's background jobs ignore SIGINT unless it has job control.
set -m
for signal in INT TERM; do
    for depth in 1 8; do
        interrupted "$signal" --threads 2 --depth "$depth" --json "$scratch/json"
        expect_code $((128 + $(kill -l "$signal")))
        expect_err "interrupted"
        # On a busy machine the signal may come before the first operation of c, or before c.
        runs=1
        [[ $out == *"interrupted: c stopped after "* ]] && runs=2
        grep -qE "^race +space: 1,000 keys" <<<"$out" || failed "does not show the space"
        grep -qE "^race +b " <<<"$out" && failed "went on with the next workload"
        grep -q '"interrupted": true' "$scratch/json" || failed "does not say so in the JSON"
        [ "$(grep -c '"ops_planned"' "$scratch/json")" -eq "$runs" ] || failed "wrote a wrong number of runs"
    done
done
exit 0
