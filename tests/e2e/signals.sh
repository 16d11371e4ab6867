#!/usr/bin/env bash
# A signal ends a program cleanly: its sessions are closed, and the pool is clean.
. "$(dirname "$0")/expect.bash"

name=e2e-signals-$$
uri=shm:$name
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$scratch" "/dev/shm/farside-$name"' EXIT

# The lease is long enough for any machine. A killed session would be reported as dead only much
# later, but its occupied slot and its lost memory show at once.
new_pool() {
    rm -f "/dev/shm/farside-$name"
    run put --pool "$uri?size=32m&lease=60000" key value
    expect_code 0
}

expect_clean() { # after what
    run stat "$uri" --json
    [[ $out == *'"clients": 1,'* ]] || failed "$1 left a session behind"
    run pool check "$uri"
    expect_code 0
    [ "$out" = "$uri: clean" ] || failed "$1 left something behind"
}

# Waits until a session of the program is open.
await_session() {
    for _ in $(seq 1200); do
        run stat "$uri" --json
        [[ $out == *'"clients": 1,'* ]] || return 0
        sleep 0.05
    done
    failed "no session was opened"
}

set -m # a script's background jobs ignore SIGINT unless it has job control
for signal in TERM INT HUP PIPE; do
    new_pool
    "$FARSIDE" bench --pool "$uri" --keys 1k --ops 1g --workload update --threads 2 \
        >/dev/null 2>&1 &
    pid=$!
    await_session
    kill "-$signal" "$pid" || failed "ended by itself"
    wait "$pid"
    [ $? = $((128 + $(kill -l $signal))) ] || failed "SIG$signal: the exit status is wrong"
    pid=
    expect_clean "SIG$signal"
done

# A reader that leaves after the first line.
new_pool
"$FARSIDE" bench --pool "$uri" --keys 1k --ops 10k --workload load,a,b,c,update 2>/dev/null |
    head -n 1 >/dev/null
expect_clean "a reader that left"
"$FARSIDE" stat "$uri" --json 2>/dev/null | head -c 1 >/dev/null
expect_clean "a reader that left"
"$FARSIDE" get --pool "$uri" key 2>/dev/null | true
expect_clean "a reader that left"
run get --pool "$uri" key
[ "$out" = value ] || failed "lost the key"
exit 0
