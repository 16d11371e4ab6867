#!/usr/bin/env bash
# Pages of --report in a browser: the numbers are those of the JSON, no labels overlap, the console stays
# empty, and a phone shows all of it. The pictures are left in $PICTURES, if that is set.
. "$(dirname "$0")/expect.bash"

skip() {
    echo "skipped: $1"
    exit 77
}
command -v python3 >/dev/null || skip "there is no python3"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    skip "there is no Chromium (Debian's package chromium)"

# NAME JSON...: checks NAME.html against the JSON files, and with the expressions in report_NAME.js
check() {
    local name=$1 expressions
    shift
    last="the page of: $last"
    expressions=$(dirname "$0")/report_$name.js
    [ -e "$expressions" ] || expressions=/dev/null
    mkdir -p "${PICTURES:-$scratch}/$name"
    out=$(python3 "$(dirname "$0")/report_check.py" "$scratch/$name.html" "$chromium" "${PICTURES:-$scratch}/$name" \
        "$expressions" "$@" 2>"$scratch/err")
    code=$? err=$(<"$scratch/err")
    expect_code 0
    expect_out " numbers, "
    for picture in {390,1280}-{light,dark}.png; do
        [ -s "${PICTURES:-$scratch}/$name/$picture" ] || failed "has no picture $picture"
    done
}

# Several numbers of clients, repeats, a workload with a long name, one with thousands of round trips.
run bench --keys 2k --ops 2k --threads 1,2,3 --repeat 2 --workload load,a,insert=25+modify=25+get=50,iterate \
    --report "$scratch/threads.html" --json "$scratch/threads.json"
expect_code 0
check threads "$scratch/threads.json"

# Time lines: the model's windows are short, and its time does not depend on the machine.
run bench --pool 'model:?nic=cx6&machines=1&threads=2' --keys 4k --ops 12k --workload load,a,c \
    --report "$scratch/model.html" --json "$scratch/model.json"
expect_code 0
[ "$(grep -c '"seconds": 0.03' "$scratch/model.json")" -gt 0 ] || failed "has no time lines"
check model "$scratch/model.json"

# An experiment.
run reproduce rtts --quick --out "$scratch/results" --report "$scratch/rtts.html" --json "$scratch/rtts.json"
expect_code 0
check rtts "$scratch/rtts.json"

# Odd names, troubles, missing numbers, and all kinds of charts: several results in one page.
python3 "$(dirname "$0")/report_odd.py" "$scratch" || exit 1
run report --report "$scratch/odd.html" "$scratch"/odd?.json
expect_code 0
check odd "$scratch"/odd?.json
exit 0
