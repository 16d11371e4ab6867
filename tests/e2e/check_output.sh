#!/usr/bin/env bash
# farside check: what it prints, what it writes as JSON, and what it refuses.
. "$(dirname "$0")/expect.bash"

run check --index race --seeds 1..30
expect_code 0
expect_no_err
grep -qE "^race: 30 histories, [0-9]+ operations, [0-9]+ verbs, [0-9]+ resizes$" <<<"$out" ||
    failed "has no summary"
grep -qE "faults: [1-9][0-9]* crashes, [1-9][0-9]* pauses, [1-9][0-9]* errors" <<<"$out" ||
    failed "does not count the faults"
grep -qE "growth: [0-9.]+ restructurings a run; one on another in [1-9][0-9]* %" <<<"$out" ||
    failed "does not say how tables grew"
grep -qE "sessions: [1-9][0-9]* opened at work, [1-9][0-9]* closed" <<<"$out" ||
    failed "does not say how sessions came and went"
grep -qE " 0 undecided; " <<<"$out" || failed "does not count what is undecided"
[ "$(tail -n 1 <<<"$out")" = "30 passed, 0 failed" ] || failed "has no closing line"

# The same seeds give the same runs.
first=$(sed 's/; [0-9.]* s$//' <<<"$out")
run check --index race --seeds 1..30
[ "$(sed 's/; [0-9.]* s$//' <<<"$out")" = "$first" ] || failed "is a different run"

# All indexes share the seeds.
run check --seeds 1..30
expect_code 0
[ "$(tail -n 1 <<<"$out")" = "30 passed, 0 failed" ] || failed "did not run each seed once"
for index in $(indexes); do
    expect_out "$index: "
done
count=$(indexes | wc -l)
run check --seeds "1..$((count - 1 > 0 ? count - 1 : 1))" # the seeds of all but the first
[ "$(grep -c " histories, " <<<"$out")" = $((count - 1 > 0 ? count - 1 : 1)) ] ||
    failed "shows an index without a seed"

run check --index race --seeds 7 --clients 2 --keys 1 --ops 5 --faults none --profile sc
expect_code 0
expect_out "race: 1 histories"
expect_out "faults: 0 crashes, 0 pauses, 0 errors, 0 nodes lost"
expect_out "verbs: 0 torn, 0 atomics halved, 0 reordered, 0 completed"

run check --seeds 1..100 --faults reorder,interleave,delay --profile ib_loose
expect_code 0
grep -qE "[1-9][0-9]* reordered, [1-9][0-9]* completed before" <<<"$out" ||
    failed "is not loose at all"

# Every schedule.
run check --exhaustive --faults none
expect_code 0
for index in $(indexes); do
    expect_out "$index: 30 programs"
done
expect_out "every schedule"
run check --index race --exhaustive --switches 1
expect_code 0
expect_out "not every schedule"
run check --exhaustive --grow 1 --clients 1 --faults none --switches 1
expect_code 0
for index in $(indexes); do
    expect_out "$index: 10 programs"
done
[ "$(grep -cE "growth: in 10 of 10 programs, in (9[0-9]|100) % of the histories" <<<"$out")" = "$count" ] ||
    failed "does not make every table grow"

# JSON alone, and in addition to the text.
run check --index race --seeds 1..3 --json -
expect_code 0
[[ $out == "{"*"}" ]] || failed "is not JSON alone"
for field in '"index": "race"' '"histories": 3' '"undecided": 0' '"passed": 3' '"failed": 0' \
    '"crash": ' '"resizes": ' '"coverage": ' '"runs": 3' '"runs_with_cascades": '; do
    expect_out "$field"
done
run check --seeds 1..3 --json "$scratch/json"
expect_code 0
expect_out "3 passed, 0 failed"
grep -q '"profile": "ib"' "$scratch/json" || failed "wrote no JSON"
run check --seeds 1..3 --json "$scratch/none/json"
expect_code 1
expect_err "cannot write"

# Where faults struck. A seed runs again with a fault at a place that it reaches.
small="--index race --clients 2 --ops 5"
run check $small --seeds 1..4 --coverage --json "$scratch/json"
expect_code 0
grep -qE "^aimed at rare faults: [1-9][0-9]* histories" <<<"$out" || failed "aims at nothing"
place=$(awk '$1 ~ /^index\/race\/race_write.c:/ && $3 > 10 { print $1; exit }' <<<"$out")
[ -n "$place" ] || failed "does not show where RACE writes"
grep -qE "^  unmet: index/chime/[a-z_]*\.c:[a-z_.0-9]* all$" <<<"$out" ||
    failed "does not list what no run has reached"
grep -qE "^  reached: [1-9][0-9]* of [1-9][0-9]* places$" <<<"$out" || failed "does not count the places"
grep -qF "\"place\": \"$place\"" "$scratch/json" || failed "has no places in JSON"
run check $small --seeds 1..5 --coverage --at "$place,before,2"
expect_code 0
awk -v place="$place" '$1 == place && $4 < 3 { exit 1 }' <<<"$out" || failed "the fault did not strike"
first=$(grep "^  index/race" <<<"$out")
run check $small --seeds 1..5 --coverage --at "$place,before,2"
[ "$(grep "^  index/race" <<<"$out")" = "$first" ] || failed "is a different run"

# What may stay unmet.
grep '^  unmet: ' <<<"$out" | sed 's/^  unmet: //; s/$/ a reason/' >"$scratch/unmet"
run check $small --seeds 1..5 --coverage --at "$place,before,2" --unmet "$scratch/unmet"
expect_code 1 # five seeds do not meet everything that is counted
expect_err "never happened: "
[[ $err != *"not listed"* ]] || failed "objects to what is listed"
sed -i 1d "$scratch/unmet"
run check $small --seeds 1..5 --coverage --at "$place,before,2" --unmet "$scratch/unmet"
expect_code 1
expect_err "unmet, and not listed in $scratch/unmet: "
echo "pool/none.c:none all" >>"$scratch/unmet"
run check $small --seeds 1 --coverage --at "$place,before,2" --unmet "$scratch/unmet"
expect_code 1
expect_err "no place is called 'pool/none.c:none'"

# What it refuses.
refuses() {
    run check "${@:2}"
    expect_code 2
    expect_no_out
    expect_err "$1"
}
refuses "unknown index 'none' (available: all, $(index_list))" --index none
refuses "unknown index 'none' (available: all, $(index_list))" --index race,none
refuses "unknown index '' (available: all" --index race,
refuses "index 'race' is given twice" --index race,race
run check --index chime,race --seeds 1..3
expect_code 0
expect_out "6 passed, 0 failed"
[[ $out == *chime:*race:* ]] || failed "does not run both, in this order"
refuses "invalid --seeds '5..1'" --seeds 5..1
refuses "invalid --seeds 'x'" --seeds x
refuses "unknown fault 'rain' (available: all, none, delay" --faults delay,rain
refuses "invalid --profile 'tso'" --profile tso
refuses "invalid --clients '0'" --clients 0
refuses "invalid --clients '17'" --clients 17
refuses "--switches needs --exhaustive" --switches 3
refuses "--grow needs --exhaustive" --grow 1
refuses "--unmet needs --coverage" --unmet "$scratch/unmet"
refuses "--exhaustive does not go with --coverage" --exhaustive --coverage
refuses "unknown place 'here'" --at here,before,0
refuses "invalid --at '$place,rain,0'" --at "$place,rain,0"
refuses "invalid --at '$place,reused,0'" --at "$place,reused,0"
refuses "too much for --exhaustive" --exhaustive --clients 8 --ops 4
refuses "--exhaustive does not support fault 'pause' (available: none" --exhaustive --faults crash,pause
refuses "--exhaustive does not support fault 'delay'" --exhaustive --faults all
refuses "unexpected argument" more
refuses "unknown option '--bogus'" --bogus
