#!/usr/bin/env bash
# --report and --csv: what they write, what they leave alone, and what they say when they cannot write.
# What a page draws is for report_browser.sh: here, it is the results that the page has as JSON.
. "$(dirname "$0")/expect.bash"

cd "$scratch" || exit 1
small=(--index race --keys 1k --ops 1k --workload load,c)

# PAGE PATTERN: how often the pattern is in the JSON of the page
count_in() {
    sed -n 's,^<script type="application/json" id="results">\(.*\)</script>$,\1,p' "$1" | grep -oE "$2" | wc -l
}

# ---- both files, beside the table ----
run bench "${small[@]}" --report page.html --csv table.csv --json json
expect_code 0
expect_no_err
expect_out "1,000 keys of 16 bytes"
[ "$(head -c 15 page.html)" = "<!DOCTYPE html>" ] || failed "is no page"
[ "$(tail -n 1 page.html)" = "</html>" ] || failed "is not a whole page"
[ "$(count_in page.html '"workload":"(load|c)","repeat":1')" -eq 2 ] || failed "does not have the results of both workloads"
if grep -q '@[A-Z]*@' page.html; then failed "is not joined"; fi
grep -q '"timeline": \[' json || failed "has no time line in the JSON"
[ "$(ls)" = "$(printf '%s\n' err json out page.html table.csv)" ] || failed "leaves other files: $(ls)"
[ "$(grep -c $'\r$' table.csv)" -eq 3 ] || failed "has lines for other runs, or with other ends"
run bench --index chime,race --keys 100 --ops 100 --workload load --csv -
expect_code 0
[ "$(cut -d, -f2 <<<"$out" | tr '\n' ' ')" = "index chime race " ] || failed "does not run both, in this order"
run bench "${small[@]}" --csv -
expect_code 0
[[ $out == pool,index,tuning,workload,* ]] || failed "prints something else than CSV"
run report --csv - json
expect_code 0
[[ $out == pool,index,tuning,workload,* ]] || failed "prints something else than CSV"
run bench "${small[@]}" --csv - --json -
expect_code 2
expect_err "only one file can be -"
[ ! -e - ] || failed "wrote a file of that name"
grep -q '^pool,index,tuning,workload,' table.csv || failed "has no names of columns"
rate=$(grep -m 1 -oE '"ops_per_s": [0-9.]+' json)
grep -q ",load,.*,${rate#* }," table.csv || failed "has another throughput than the JSON"

# With JSON on the standard output.
run bench "${small[@]}" --report page.html --json -
expect_code 0
[[ $out == "{"*"}" ]] || failed "is not JSON alone"

# ---- what cannot be written is refused before anything runs ----
for name in nowhere/page.html . ""; do
    for option in --report --csv; do
        run bench "${small[@]}" "$option" "$name"
        expect_code 1
        expect_err "cannot write '$name': "
        expect_no_out
    done
done
run bench "${small[@]}" --report other.html --csv nowhere/table.csv
expect_code 1
run bench "${small[@]}" --report other.html --json nowhere/json
expect_code 1
[ -z "$(ls other.html* 2>/dev/null)" ] || failed "leaves a part behind"
run reproduce rtts --quick --report nowhere/page.html
expect_code 1
expect_err "cannot write 'nowhere/page.html': "
[ ! -e reproduction ] || failed "began nevertheless"

# ---- a full disk ----
run bench "${small[@]}" --report /dev/full
expect_code 1
expect_err "cannot write '/dev/full': No space left on device"
[ -c /dev/full ] || failed "replaced a device"
cp page.html before.html
last="farside bench --report, with a limit of the file's size"
(
    ulimit -f 8
    # The thread sanitizer has a file of its own in TMPDIR, if it can, which the limit would cut short.
    TMPDIR=/nonexistent "$FARSIDE" bench "${small[@]}" --report page.html >out 2>err
)
code=$? err=$(<err)
expect_code 1
expect_err "cannot write 'page.html': File too large"
cmp -s page.html before.html || failed "damaged the older page"
[ ! -e page.html.part ] || failed "leaves a part behind"

# ---- nothing measured: an older page stays ----
run bench "${small[@]}" --pool "shm:$scratch/none" --report page.html --csv table.csv
[ "$code" -ne 0 ] || failed "ran in a pool that does not exist"
cmp -s page.html before.html || failed "replaced the older page"

# ---- a link stays one ----
ln -s page.html link.html
run bench "${small[@]}" --report link.html
expect_code 0
[ -L link.html ] || failed "replaced the link"
cmp -s page.html before.html && failed "did not write where the link leads"

# ---- a signal: what was measured is there ----
set -m # otherwise a script's background jobs ignore SIGINT
last="farside bench --report, SIGINT"
: >out
"$FARSIDE" bench --index race --keys 1k --ops 1g --workload load,c --report page.html --csv table.csv >out 2>err &
pid=$!
for _ in $(seq 600); do
    grep -q "^race *load" out && break
    sleep 0.1
done
kill -INT "$pid" || failed "ended by itself"
wait "$pid"
code=$? out=$(<out) err=$(<err)
expect_code 130
[ "$(count_in page.html '"workload":"load","repeat":1')" -eq 1 ] || failed "lost what was measured before in the page"
[[ $out != *"interrupted: c"* ]] || [ "$(count_in page.html '"workload":"c","repeat":1.*"interrupted":true')" -eq 1 ] ||
    failed "does not say so in the page"
grep -q ",load," table.csv || failed "lost what was measured before"

# ---- pages of results that are kept ----
run report --report both.html --csv both.csv json json
expect_code 0
expect_no_out
expect_no_err
[ "$(count_in both.html '"pool":"mem:"')" -eq 2 ] || failed "does not have both results"
[ "$(grep -c $'\r$' both.csv)" -eq 5 ] || failed "does not have the rows of both results"
run report json
expect_code 2
expect_err "nothing to write: give --report FILE, --csv FILE or both"
run report --report both.html
expect_code 2
expect_err "missing argument RESULTS"
run report --report both.html none.json
expect_code 1
expect_err "cannot read 'none.json'"
echo '{"farside": "1"}' >other.json
run report --report both.html other.json
expect_code 1
expect_err "'other.json' has no results: expected a file that bench, compare or reproduce has written with --json"

# ---- repeats ----
run bench --index race --keys 500 --ops 500 --workload c,a,c --repeat 3 --report page.html --csv table.csv
expect_code 0
[ "$(cut -d, -f 5 table.csv | sort | uniq -c | awk '{print $2 ":" $1}' | paste -sd' ')" = \
    "1:4 2:4 3:4 repeat:1" ] || failed "does not number the repeats"
[ "$(count_in page.html '"repeat":3')" -eq 3 ] || failed "does not have all repeats in the page"
exit 0
