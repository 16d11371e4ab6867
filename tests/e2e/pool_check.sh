#!/usr/bin/env bash
# farside pool check reports and repairs what a killed session leaves; scripts can rely on the exit
# status.
. "$(dirname "$0")/expect.bash"

name=e2e-check-$$
uri=shm:$name
trap 'rm -rf "$scratch" "/dev/shm/farside-$name"' EXIT

# The parts of a pool's memory add up, in JSON and in text.
expect_sum() {
    run_leased stat "$uri" --json
    expect_code 0
    part() { sed -n "s/.*\"bytes_$1\": \([0-9]*\).*/\1/p" <<<"$out"; }
    [ "$(part total)" -eq 16777216 ] || failed "the total is wrong"
    sum=$(($(part metadata) + $(part live) + $(part retired) + $(part free) + $(part unknown)))
    [ "$sum" -eq "$(part total)" ] || failed "the parts are $sum together"
    run_leased stat "$uri"
    expect_code 0
    for line in metadata live retired free unknown; do
        expect_out "  $line "
    done
    sum=$(awk '/^  (metadata|live|retired|free|unknown) / { n += $2 } END { print n }' <<<"$out")
    [ "$sum" -eq 16777216 ] || failed "the lines are $sum together"
}

# Waits until the sessions of the benchmark are open and work: seen ten times in a row, because at its
# beginning it has none for moments.
await_bench() { # how many
    local seen=0 clients=$(($1 + 1)) # and that of stat
    for _ in $(seq 1200); do
        run_leased stat "$uri" --json
        [[ $out == *"\"clients\": $clients"* ]] && seen=$((seen + 1)) || seen=0
        [ $seen -lt 10 ] || break
        sleep 0.05
    done
}

run_leased put --pool "$uri?size=16m&lease=1000" key value
expect_code 0
run_leased put --pool "$uri" key other
run_leased pool check "$uri"
expect_code 0
expect_no_err
[ "$out" = "$uri: clean" ] || failed "says more than that it is clean"
expect_sum

# A process that was killed, with two sessions.
"$FARSIDE" bench --pool "$uri" --threads 2 --keys 1k --ops 100m --workload update >/dev/null 2>&1 &
victim=$!
await_bench 2
kill -9 $victim
wait $victim 2>/dev/null
run_leased pool check "$uri"
expect_code 1
expect_out "dead: the session in slot"
expect_out "--repair"
run_leased pool check "$uri" --json
expect_code 1
expect_out '"clean": false'
expect_out '"dead_sessions": 2'
expect_sum
run_leased pool check --repair "$uri"
expect_code 0
expect_err "watching for silent sessions"
expect_err "removing dead sessions"
expect_out "2 dead sessions"
expect_out "$uri: clean"
run_leased pool check "$uri" --json
expect_code 0
expect_out '"clean": true'
expect_out '"leaked_bytes": 0'
expect_sum
run_leased get --pool "$uri" key
[ "$out" = other ] || failed "lost the key"

# A damaged superblock is a finding; a pool that does not exist cannot be checked.
cp "/dev/shm/farside-$name" "$scratch/pool"
printf 'XXXX' | dd of="$scratch/pool" bs=1 seek=24 conv=notrunc status=none
run_leased pool check "shm:$scratch/pool"
expect_code 1
expect_err "cannot open the pool"
run_leased pool check "shm:$scratch/none"
expect_code 3
expect_err "cannot check the pool"
for wrong in "" "check" "check $uri more" "check --fix $uri" "mend $uri" "check nosuch:"; do
    run pool $wrong
    expect_code 2
    expect_no_out
done

# Control-C ends it cleanly: the session is closed, and the pool is clean.
rm "/dev/shm/farside-$name"
"$FARSIDE" bench --pool "$uri?size=16m&lease=4000" --keys 1k --ops 100m --workload update \
    >/dev/null 2>&1 &
victim=$!
await_bench 1
kill -9 $victim
wait $victim 2>/dev/null
# Without its witness, the last word of its slot, it could be on another machine: its heartbeat is
# watched. Otherwise its death would be known at once.
for slot in 0 1 2 3; do
    dd if=/dev/zero of="/dev/shm/farside-$name" bs=8 count=1 conv=notrunc status=none \
        seek=$(((704 + slot * 64 + 56) / 8))
done
"$FARSIDE" pool check "$uri" >/dev/null 2>"$scratch/err" &
checking=$!
# Until the program handles the signal; then it watches for a lease and a half. Before it is the
# program it is a copy of this shell, which handles signals too.
for _ in $(seq 1200); do
    if [ "/proc/$checking/exe" -ef "$FARSIDE" ]; then
        caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$checking/status")
        ((16#${caught:-0} & 2)) && break
    fi
    sleep 0.05
done
kill -INT $checking 2>/dev/null
wait $checking
code=$?
last="farside pool check, interrupted"
out= err=$(<"$scratch/err")
expect_code 130
expect_err "stopped by the caller"
run_leased pool check --repair "$uri"
expect_code 0
run_leased stat "$uri" --json
expect_out '"clients": 1,'
