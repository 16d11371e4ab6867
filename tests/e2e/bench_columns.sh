#!/usr/bin/env bash
# The table of the benchmark fits into 100 columns, in any set-up. It explains what needs explaining.
. "$(dirname "$0")/expect.bash"

fits() {
    local wide
    wide=$(awk 'length > 100' <<<"$out")
    [ -z "$wide" ] || failed "is wider than 100 columns: $wide"
}

run bench --keys 2k --ops 2k --workload load,a,d,f,miss,delete,modify,iterate
expect_code 0
fits
expect_out "get: 2,000 of 2,000 did not find their key"
[[ $out != *"in flight, these times"* ]] || failed "explains a depth of 1"

long=shm:$scratch/$(printf 'x%.0s' {1..150})
run bench --pool "$long?size=256m" --keys 2k --ops 2k --workload load,a,iterate --raw --depth 8 \
    --threads 1,2 --seed 9223372036854775807 --theta 0.123456789 --value-size 5000
expect_code 0
fits
expect_out "1, 2 threads with 8 operations in flight"
expect_out "with 2 threads:"
expect_out "p50, p99: with 8 operations in flight, these times include"

run bench --keys 2k --ops 2k --workload load,b --rate 1g --threads 2 --depth 2
expect_code 0
fits

run bench --keys 4k --ops 2k --workload load,f,delete,iterate --rate 1g --warmup 1k \
    --repeat 2 --threads 1,2 --timeline --counters
expect_code 0
fits

run bench --index chime --keys 2k --ops 2k --workload load,e,scan
expect_code 0
fits

run bench --pool "mem:?size=2m" --keys 100k --ops 2k --value-size 1000
expect_code 1
fits

run bench --pool "shm:$scratch/pool?size=256m" --processes 2 --threads 2 --depth 2 --raw --keys 2k \
    --ops 2k --workload load,b
expect_code 0
fits

# Numbers of threads.
run bench --keys 500 --ops 500 --index race --workload load,c --threads 1,2,3 --json "$scratch/json"
expect_code 0
for threads in 1 2 3; do
    # Two runs, and two summaries.
    [ "$(grep -c "\"threads\": $threads" "$scratch/json")" -eq 4 ] || failed "lacks runs"
done
for list in "" 0 1, ,1 1,x 1,1025 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17; do
    run bench --threads "$list"
    expect_code 2
    expect_err "invalid --threads '$list'"
done
run bench --pool "shm:$scratch/pool" --threads 1,2 --processes 2
expect_code 2
expect_err "--threads takes one number"
exit 0
