#!/usr/bin/env bash
# docs/reproduction.md has what the program measures: some experiments again, compared to the digit. scripts/reproduction-page
# writes it.
. "$(dirname "$0")/expect.bash"

cd "$scratch" || exit 1

run reproduce coroutines,locks --quick --json results.json
expect_code 0
"$SOURCE/scripts/reproduction-page" --check results.json >diff ||
    failed "and docs/reproduction.md differ; scripts/reproduction-page writes it: $(<diff)"

# The script notices a number, a verdict and a row that are others.
for change in 's/"verdict": "holds"/"verdict": "does not hold"/' 's/"found": "get: 0/"found": "get: 9/' \
    's/in flight:/at once:/'; do
    sed "$change" results.json >changed.json
    cmp -s results.json changed.json && failed "has nothing for '$change'"
    "$SOURCE/scripts/reproduction-page" --check changed.json >diff && failed "is compared without '$change'"
done

exit 0
