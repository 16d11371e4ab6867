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

# Commands that stream: a signal ends them while they wait for a pipe that nobody reads or fills.
new_pool
run bench --keep --pool "$uri" --keys 20k --ops 1 --workload load --index race
expect_code 0
run dump --pool "$uri" "$scratch/dump"
expect_code 0
mkfifo "$scratch/pipe"
streams() { # starts a command that will wait
    case $1 in
    load) # More than the first record. With descriptor 3 it would read the pipe itself, and never end.
        head -c 400000 "$scratch/dump" 3>&- >"$scratch/pipe" &
        feeder=$!
        "$FARSIDE" load --pool "$uri" --merge - <"$scratch/pipe" >/dev/null 2>"$scratch/err" & ;;
    dump) "$FARSIDE" dump --pool "$uri" - >"$scratch/pipe" 2>"$scratch/err" & ;;
    *) "$FARSIDE" "$1" --pool "$uri" --table bench-race --hex >"$scratch/pipe" 2>"$scratch/err" & ;;
    esac
    pid=$!
}
await_sleep() { # until the command waits in a system call
    for _ in $(seq 1200); do
        run stat "$uri" --json
        grep -q "^State:.S" "/proc/$pid/status" && [[ $out != *'"clients": 1,'* ]] && return 0
        sleep 0.05
    done
    failed "the command does not wait"
}
for command in list keys dump load; do
    for signal in TERM INT HUP; do
        exec 3<>"$scratch/pipe"
        feeder=
        streams "$command"
        await_sleep
        sleep 0.2 # so that it waits for the pipe rather than for anything else
        last="farside $command, SIG$signal"
        kill "-$signal" "$pid" || failed "ended by itself"
        wait "$pid"
        code=$?
        pid=
        exec 3>&-
        [ -z "$feeder" ] || wait "$feeder"
        err=$(<"$scratch/err")
        expect_code $((128 + $(kill -l "$signal")))
        expect_err "interrupted"
        [ "$command" != load ] || expect_err "With --from "
        expect_clean "farside $command, SIG$signal"
    done
done

# A dump to a file that is interrupted, or just was not, leaves a whole file or none.
for _ in 1 2 3; do
    rm -f "$scratch/dump"
    "$FARSIDE" dump --pool "$uri" "$scratch/dump" >/dev/null 2>&1 &
    pid=$!
    until ! kill -0 "$pid" 2>/dev/null || [ "$(readlink "/proc/$pid/exe")" = "$(readlink -f "$FARSIDE")" ]; do :; done
    kill -TERM "$pid" 2>/dev/null
    wait "$pid"
    pid=
    [ ! -e "$scratch/dump.partial" ] || failed "left a part of a dump"
    [ ! -e "$scratch/dump" ] || "$FARSIDE" load --check "$scratch/dump" >/dev/null || failed "left half a dump"
    expect_clean "farside dump, SIGTERM"
done

# A reader that has left: no message, and the status that shells give to SIGPIPE.
for command in "list --table bench-race" "keys --table bench-race" "dump -" "dump --json -"; do
    last="farside $command | head"
    # shellcheck disable=SC2086 # a command and its arguments
    "$FARSIDE" ${command%% *} --pool "$uri" ${command#* } 2>"$scratch/err" | head -c 1 >/dev/null
    code=${PIPESTATUS[0]}
    err=$(<"$scratch/err")
    expect_code 141
    expect_no_err
    expect_clean "$last"
done

# A full disk.
if [ -e /dev/full ]; then
    for command in "get key" list keys "list --table bench-race" "dump -" "dump --json -" "dump /dev/full" stat \
        "table list" "incr number"; do
        last="farside $command >/dev/full"
        # shellcheck disable=SC2086
        err=$(FARSIDE_POOL=$uri "$FARSIDE" $command 2>&1 >/dev/full)
        code=$?
        expect_code 1
        expect_err "cannot write"
        expect_err "No space left on device"
        expect_clean "$last"
    done
fi

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
