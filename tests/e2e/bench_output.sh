#!/usr/bin/env bash
# The benchmark prints its table and writes its JSON; without a terminal, stderr stays empty.
. "$(dirname "$0")/expect.bash"

run bench --keys 2k --ops 1k
expect_code 0
expect_no_err
expect_out "2,000 keys of 16 bytes"
for workload in load a b c d f; do
    grep -qE "^race +$workload +[0-9,]+ " <<<"$out" || failed "has no row for $workload"
done
grep -qE "^race +space: 2,050 keys at load factor 0\.[0-9]+" <<<"$out" || failed "has no space"

run bench --keys 2k --ops 1k --key-size 8-40 --value-size 16-1k --workload load,insert=20+modify=30+get=50
expect_code 0
expect_out "2,000 keys of 8 to 40 bytes, values of 16 to 1024 bytes"

# With -, only JSON; with a file, both.
run bench --keys 2k --ops 1k --workload load,miss --json -
expect_code 0
expect_no_err
[[ $out == "{"*"}" ]] || failed "is not JSON alone"
expect_out '"workload": "miss"'
expect_out '"not_found": 1000'
expect_out '"efficiency": null'

run bench --keys 2k --ops 1k --workload load --json "$scratch/json"
expect_code 0
expect_out "2,000 keys of 16 bytes"
grep -q '"workload": "load"' "$scratch/json" || failed "wrote no JSON"
grep -q '"slowest_window": 0' "$scratch/json" || failed "tells the slowest part of so short a run"

grep -q '"timeline": null' "$scratch/json" || failed "has a time line that nobody asked for"

# A time line; how long it is depends on the machine.
run bench --keys 2k --ops 1k --workload load,c --timeline --json "$scratch/json"
expect_code 0
expect_out "time line of load, in windows of 100 ms"
expect_out "time line of c, in windows of 100 ms"
grep -q '"timeline": \[' "$scratch/json" || failed "wrote no time line"

run bench --keys 2k --ops 1k --workload load --json "$scratch/none/json"
expect_code 1
expect_err "cannot write"

# With the measurement without an index.
leaks=1
run bench --keys 2k --ops 1k --workload load,c --raw --threads 2 --depth 4
expect_code 0
expect_out "of raw"
grep -qE "^race +c +[0-9,]+ +[0-9]+ % get " <<<"$out" || failed "has no efficiency"
leaks=0

# A fixed rate.
run bench --keys 2k --ops 1k --workload a --rate 1m --index race
expect_code 0
expect_out "counted from the time at which an operation was due"
expect_out "of 1,000,000 ops/s; operations began up to"
run bench --rate 1k --raw
expect_code 2
expect_err "--raw compares throughputs, but --rate sets it"
for rate in 0 x 2g; do
    run bench --rate "$rate"
    expect_code 2
    expect_err "--rate"
done

# Operations in order, some at a time, on the whole of a workload, and those that read and then write.
run bench --keys 2k --ops 1003 --depth 8 --batch --workload load,a,f,delete --json "$scratch/json"
expect_code 0
expect_out "1 thread with 8 operations at a time"
[ "$(grep -c '"batch": true' "$scratch/json")" -eq "$(grep -c '"depth": 8' "$scratch/json")" ] || failed "no batch"
[ "$(grep -c '"first_error": null' "$scratch/json")" -eq "$(grep -c '"depth": 8' "$scratch/json")" ] || failed "errors"
[ "$(grep -c '"ops": 1003,' "$scratch/json")" -eq 15 ] || failed "does not run all operations"
run bench --batch
expect_code 2
expect_err "--batch executes --depth operations at a time: say how many"
run bench --batch --depth 8 --rate 1k
expect_code 2
expect_err "--batch executes --depth operations at a time: leave it out, or --rate"

# Warming up.
run bench --keys 2k --ops 1k --warmup 500 --workload load,insert,delete --index race --json "$scratch/json"
expect_code 0
expect_out "500 operations before each workload, to warm up"
expect_out "space: 2,000 keys" # 1,500 new ones, and as many deleted
[ "$(grep -c '"warmup": 500' "$scratch/json")" -eq 2 ] || failed "did not warm up"
[ "$(grep -c '"ops": 1000,' "$scratch/json")" -eq 2 ] || failed "measured the operations to warm up"

# Repeated runs: one row for all of them, with the spread.
run bench --keys 2k --ops 1k --repeat 3 --workload load,a --index race --json "$scratch/json"
expect_code 0
expect_out "each workload runs 3 times: ops/s is the median"
[ "$(grep -cE "^race +(load|a) " <<<"$out")" -eq 2 ] || failed "has other rows than one for each workload"
[ "$(grep -cE "^  3 runs: [0-9,]+ to [0-9,]+ ops/s, " <<<"$out")" -eq 2 ] || failed "has no spread"
grep -qE "^    update: p50 [0-9.]+ to [0-9.]+ us, p99 [0-9.]+ to [0-9.]+ us" <<<"$out" || failed "has no spread"
expect_out "space: 2,000 keys"
[ "$(grep -c '"repeat": 3' "$scratch/json")" -eq 2 ] || failed "wrote no third run"
[ "$(grep -c '"runs": 3' "$scratch/json")" -eq 2 ] || failed "wrote no summary"

# In a pool that lasts, all tables are dropped, or all but the last.
run bench --pool "shm:$scratch/pool?size=256m" --keys 2k --ops 1k --repeat 3 --workload load,insert --index race
expect_code 0
[ "$(grep -c "dropped a table" <<<"$out")" -eq 1 ] || failed "says more than once that it dropped the table"
run bench --pool "shm:$scratch/pool" --keys 2k --ops 1k --repeat 3 --workload load,insert --index race --keep
expect_code 0
run table list --pool "shm:$scratch/pool"
[ "$out" = "bench-race	race" ] || failed "did not leave exactly the last table"
run bench --repeat 0
expect_code 2
expect_err "--repeat"

# Counters: context switches are always known; of the others, either the figures or the reason.
run bench --keys 2k --ops 1k --workload load,c --counters --index race --json "$scratch/json"
expect_code 0
[ "$(grep -cE "^  per operation: .*context switches" <<<"$out")" -eq 2 ] || failed "has no counters"
if grep -q '"cycles": null' "$scratch/json"; then
    [ "$(grep -c "not counted: " <<<"$out")" -eq 1 ] || failed "does not say once why not"
    grep -q '"error": "' "$scratch/json" || failed "does not say why not in its JSON"
else
    expect_out "cycles, "
fi
run bench --keys 2k --ops 1k --workload load --index race --json -
expect_out '"counters": null'
