#!/usr/bin/env bash
# Experiments of the papers: their list, wrong names, one small experiment, its files, going on with what is
# there, and a signal.
. "$(dirname "$0")/expect.bash"

cd "$scratch" || exit 1

# ---- the list ----
run reproduce --list
expect_code 0
expect_out "rtts: round trips of each operation"
expect_out "SHARD Table 3"
names=$(sed -n 's/^\([a-z-]*\): .*/\1/p' <<<"$out")
[ "$(wc -l <<<"$names")" -ge 3 ] || failed "lists hardly any experiments"

# ---- wrong use ----
run reproduce
expect_code 2
expect_err "no experiment is given (available: rtts, "
run reproduce rtts,nonsense
expect_code 2
expect_err "unknown experiment 'nonsense' (available: rtts, "
run reproduce ""
expect_code 2
expect_err "unknown experiment ''"
run reproduce rtts,rtts
expect_code 2
expect_err "experiment 'rtts' is listed twice"
run reproduce rtts --resume --force
expect_code 2
expect_err "exclude each other"
run reproduce rtts --out nowhere/results
expect_code 1
expect_err "cannot make the directory 'nowhere/results'"
[ ! -e reproduction ] || failed "made a directory"

# ---- a small experiment ----
run reproduce locks --quick --json json
expect_code 0
expect_no_err
expect_out "== locks: rows of a lock, and locks of a word, in RCuckoo"
expect_out "(--quick)"
expect_out "RCUCKOO-CLAIM-16 (RCuckoo Fig. 5)"
expect_out "Spread of the seeds: "
expect_out "-> holds: "
expect_out "-> does not hold: "
awk 'length > 100 { exit 1 }' out || failed "has lines of more than 100 columns"
[ "$(ls reproduction)" = locks ] || failed "made something else"
[ "$(find reproduction/locks -name "late-locks-*.json" | wc -l)" -eq 4 ] ||
    failed "keeps other files: $(ls reproduction/locks)"
grep -q '"verdict": "does not hold"' json || failed "has no verdicts in the JSON"
grep -q '"complete": true' json || failed "says in the JSON that it is not complete"
# How busy the modelled network was is kept, for programs and in the files.
[ "$(grep -c '"node_verbs": 0' json)" -gt 0 ] || failed "does not say in the JSON how busy the network was"
[ "$(grep -lr '"node_verbs": 0' reproduction/locks | wc -l)" -gt 0 ] || failed "does not keep how busy the network was"
verdicts() { grep -oE -e '^  [A-Z]+-C[0-9]+|-> [a-z ]*:' out; }
verdicts >first

# ---- again ----
run reproduce locks --quick
expect_code 1
expect_err "already has results of locks: use them with --resume, replace them with --force"
# Only what is missing, or of another configuration, is measured.
rm reproduction/locks/late-locks-1.json
sed -i 's/"keys": [0-9]*/"keys": 7/' reproduction/locks/late-locks-4.json
touch -d 2001-01-01 reproduction/locks/*.json
run reproduce locks --quick --resume
expect_code 0
expect_err "note: 1 result of another configuration or version was measured again"
verdicts | cmp -s first || failed "judges otherwise than the first time"
[ "$(find reproduction -newermt 2002-01-01 -name '*.json' | sort | paste -sd' ')" = \
    "reproduction/locks/late-locks-1.json reproduction/locks/late-locks-4.json" ] || failed "measured other things again"
run reproduce locks --quick --resume
expect_code 0
expect_no_err
verdicts | cmp -s first || failed "judges otherwise than the first time"
run reproduce locks --quick --force
expect_code 0
[ -z "$(find reproduction ! -newermt 2002-01-01 -name '*.json')" ] || failed "did not measure everything again"

# ---- a signal ----
# A script's background jobs ignore SIGINT unless it has job control.
set -m
for signal in INT TERM; do
    last="farside reproduce rtts, $signal"
    : >out
    "$FARSIDE" reproduce rtts --out "$signal" --json json >out 2>err &
    pid=$!
    for _ in $(seq 600); do
        grep -q measurements out && break
        sleep 0.1
    done
    kill "-$signal" "$pid" || failed "ended by itself"
    wait "$pid"
    code=$? out=$(<out) err=$(<err)
    expect_code $((128 + $(kill -l "$signal")))
    expect_err "interrupted; what is finished is in '$signal'. To continue: farside reproduce rtts --resume --out '$signal'"
    grep -q '"complete": false' json || failed "says in the JSON that it is complete"
    [ -z "$(find "$signal" -type f ! -name '*.json')" ] || failed "left something half-written"
done
exit 0
