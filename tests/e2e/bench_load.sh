#!/usr/bin/env bash
# Many clients that fill an empty table at once. On SHARD each insert of a bucket waits for its turn, so the table must
# get enough buckets early: a put may take half as many round trips again as with one client, and no more.
. "$(dirname "$0")/expect.bash"

round_trips() { # MACHINES THREADS DEPTH: of a put, in hundredths
    run bench --pool "model:?nic=cx6&machines=$1&threads=$2&depth=$3" --index shard --workload load --keys 30k
    expect_code 0
    expect_no_err
    awk '$1 == "shard" && $2 == "load" { printf "%d\n", $5 * 100 }' <<<"$out"
}
alone=$(round_trips 1 1 1)
many=$(round_trips 4 6 4)
[ "$alone" -gt 200 ] || failed "shows no round trips of one client"
[ "$many" -le $((alone * 3 / 2)) ] || failed "takes $many round trips in a hundred puts, and $alone with one client"
