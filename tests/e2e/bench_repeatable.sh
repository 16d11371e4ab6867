#!/usr/bin/env bash
# The same seed gives the same operations at the same cost; another seed gives others. The long
# lease keeps out heartbeats, which go by the clock. An idle session is parked after half a second,
# which lets others reuse memory: a build with sanitizers runs fewer operations, to be done before.
. "$(dirname "$0")/expect.bash"

keys=20k ops=10k
if ldd "$FARSIDE" | grep -qE 'lib(a|t)san'; then
    keys=2k ops=1k
fi
costs() { # what does not depend on the machine
    run bench --keys $keys --ops $ops --workload load,a,d,f,insert,delete --json - --seed "$1" \
        --pool "mem:?lease=3600000"
    expect_code 0
    grep -E '"(workload|ops|count|rtts|verbs|bytes_read|bytes_written|index_bytes|splits)":' \
        <<<"$out"
}

first=$(costs 7) || exit 1
again=$(costs 7) || exit 1
other=$(costs 8) || exit 1
[ "$(grep -c '"rtts"' <<<"$first")" -eq $((9 * $(indexes | wc -l))) ] ||
    failed "does not have nine kinds of operations for each index"
[ "$first" = "$again" ] || failed "differs: $(diff <(echo "$first") <(echo "$again"))"
[ "$first" != "$other" ] || failed "does not depend on the seed"
