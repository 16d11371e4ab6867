#!/usr/bin/env bash
# Clients of memory nodes are killed at work: the keys of others stay, the others go on, and what
# dead clients left behind is found and removed.
. "$(dirname "$0")/expect.bash"
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: nothing was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"

# Starts a client that works until it is killed, and waits until its two sessions are open.
start_victim() {
    "$FARSIDE" bench --pool "$pool" --threads 2 --keys 20k --ops 100m --workload load,a >/dev/null 2>&1 &
    victim=$!
    nodes+=("$victim")
    for _ in $(seq 600); do
        kill -0 "$victim" 2>/dev/null || return
        run stat --pool "$pool" --table kept --json
        [[ $out =~ \"clients\":\ [3-9] ]] && return
        sleep 0.05
    done
}

for round in 1 2 3; do
    memd --size 64m
    one=$address
    memd --size 64m
    pool="ucx://$one,$address?lease=3000"
    for i in 1 2 3 4 5; do
        run_leased put --pool "$pool" --table kept "key $i" "value $i"
        expect_code 0
    done
    # A victim that the system does not let run for a lease is taken for dead, and ends by itself.
    for _ in $(seq 20); do
        start_victim
        sleep 0.$((2 * round)) # any time will do
        run_leased put --pool "$pool" --table kept "before" "$round"
        expect_code 0
        end_memd KILL "$victim"
        [ "$code" -eq 137 ] && break
    done
    [ "$code" -eq 137 ] || failed "the benchmark had ended before"
    run_leased put --pool "$pool" --table kept "after" "$round"
    expect_code 0
    for i in 1 2 3 4 5; do
        run_leased get --pool "$pool" --table kept "key $i"
        expect_code 0
        [ "$out" = "value $i" ] || failed "is not what was put"
    done
    run_leased pool check --repair "$pool"
    expect_code 0
    run_leased stat --pool "$pool"
    expect_code 0
    expect_out "node $one"
done
