#!/usr/bin/env bash
# JSON is UTF-8, but names need not be: bytes that are not UTF-8 are written as \xHH.
. "$(dirname "$0")/expect.bash"

odd=$'caf\xe9'
good=$'caf\xc3\xa9'
pool="shm:$scratch/p$odd"
run put --pool "$pool?size=16m" --table "$odd" key value
expect_code 0
run put --pool "$pool" --table "$good" key value
expect_code 0
run stat --pool "$pool" --json
expect_code 0
expect_out '"name": "caf\\xe9"'
expect_out '"name_hex": "636166e9"'
expect_out "\"name\": \"$good\""
expect_out 'pcaf\\xe9"'
[ "$(grep -c name_hex <<<"$out")" -eq 1 ] || failed "writes a name that is UTF-8 in hexadecimal"
run stat --pool "$pool" --table "$odd" --json
expect_code 0
expect_out '"name_hex": "636166e9"'
[ "$(grep -c fptable <<<"$out")" -eq 0 ] || failed "shows FPTables of an index that has none"
run put --pool "$pool" --table sep --index sephash key value
expect_code 0
run stat --pool "$pool" --table sep --json
expect_code 0
expect_out '"fptable_bytes": 0'
expect_out '"fptable_plain_bytes": 2048'
run stat --pool "$pool" --table sep
expect_code 0
expect_out "  fptable_plain_bytes     2048"
run pool check "$pool" --json
expect_code 0
expect_out 'pcaf\\xe9"'
run bench --pool "$pool" --keys 100 --ops 100 --workload get --json -
expect_code 0
expect_out 'pcaf\\xe9"'
