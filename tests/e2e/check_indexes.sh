#!/usr/bin/env bash
# The indexes pass 2,000 seeds with all faults, which they share, and no history is left undecided.
# (Fewer in a build with sanitizers, which takes twenty times as long. `make check` runs 10,000.)
. "$(dirname "$0")/expect.bash"

seeds=2000
if ldd "$FARSIDE" | grep -qE 'lib(a|t)san'; then
    seeds=300
fi
run check --index all --seeds "1..$seeds" --fail-fast
expect_code 0
expect_no_err
[ "$(grep -c " 0 undecided" <<<"$out")" = "$(grep -c " histories, " <<<"$out")" ] ||
    failed "left a history undecided"
for index in $(indexes); do
    expect_out "$index: "
done
expect_out "$seeds passed, 0 failed"
