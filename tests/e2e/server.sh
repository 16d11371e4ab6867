#!/usr/bin/env bash
# The example of an event loop (server.c), on mem: and on a memory node: clients that ask at the
# same time get their own answers, a client that disconnects disturbs nobody, and the idle server
# sleeps.
. "$(dirname "$0")/expect.bash"
. "$(dirname "$0")/memd.bash"

fail() {
    last="server $pool" code=? out=$1 err=$(<"$scratch/server.err")
    failed "$2"
}

serve() {
    pool=$1
    : >"$scratch/port"
    "$BUILD/tests/example_server" "$pool" >"$scratch/port" 2>"$scratch/server.err" &
    server=$!
    nodes+=("$server")
    for _ in $(seq 600); do
        read -r port <"$scratch/port" && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    fail "" "does not start"
}

# ask FD LINE ANSWER
ask() {
    echo "$2" >&"$1"
    answer "$1" "$2" "$3"
}

answer() {
    local got
    read -r -t 60 got <&"$1" || fail "$2" "gives no answer"
    [ "$got" = "$3" ] || fail "$2: $got" "does not answer: $3"
}

# Counts how often the thread of the server went to sleep.
sleeps() { awk '/^voluntary/ {print $2}' "/proc/$server/task/$server/status"; }

converse() {
    local fd fds=() i before
    for i in 1 2 3 4 5 6 7 8; do
        exec {fd}<>"/dev/tcp/127.0.0.1/$port"
        fds+=("$fd")
    done
    ask "${fds[0]}" "get red" "no such key"
    ask "${fds[0]}" "put red crimson" "ok"
    ask "${fds[1]}" "get red" "crimson"
    ask "${fds[2]}" "put empty " "ok"
    ask "${fds[2]}" "get empty" ""
    ask "${fds[3]}" "del red" "ok"
    ask "${fds[3]}" "del red" "no such key"
    ask "${fds[4]}" "dance" "invalid argument"
    ask "${fds[4]}" "get " "the key is empty or longer than the limit"
    # All clients at the same time, each several lines ahead.
    for i in 0 1 2 3 4 5 6 7; do
        printf 'put key%d value %d\nget key%d\ndel key%d\nget key%d\n' $i $i $i $i $i >&"${fds[i]}"
    done
    for i in 7 6 5 4 3 2 1 0; do
        answer "${fds[i]}" put "ok"
        answer "${fds[i]}" get "value $i"
        answer "${fds[i]}" del "ok"
        answer "${fds[i]}" get "no such key"
    done
    # Some disconnect during a request, one after half a line.
    for i in 5 6 7; do
        fd=${fds[i]}
        printf 'put left%d x\nput hal' $i >&"$fd"
        exec {fd}>&-
    done
    ask "${fds[0]}" "put red scarlet" "ok"
    ask "${fds[1]}" "get red" "scarlet"
    # No requests. The keeper of sessions is another thread.
    sleep 1
    before=$(sleeps)
    sleep 2
    [ $(($(sleeps) - before)) -le 20 ] || fail "$(($(sleeps) - before)) times" "is awake in vain"
    ask "${fds[4]}" "get red" "scarlet"
    kill "$server"
    wait "$server" || fail "" "does not end well"
    for i in 0 1 2 3 4; do
        fd=${fds[i]}
        exec {fd}>&-
    done
}

serve "mem:?size=64m"
converse
if ! "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    memd --size 64m
    serve "ucx://$address?lease=60000&timeout=60000"
    converse
    run pool check "$pool"
    expect_code 0
fi
