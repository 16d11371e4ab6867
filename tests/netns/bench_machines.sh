#!/usr/bin/env bash
# A benchmark of three hosts: each has its share, and one shows the result of all. One of them is
# killed, or its link is cut: the others name it and end. The node is killed: all end, and name it.
. "$(dirname "$0")/hosts.bash"
make_hosts
pool="ucx://$a?lease=$lease&timeout=2000"
start_node a --size 256m
for host in c0 c1 c2; do
    await_nodes $host "$pool"
done

declare -A pid
start() { # OPTION...: rank 0 at c0, and so on
    for n in 0 1 2; do
        : >"$scratch/bench$n.out"
        # A host name of its own, as there is one namespace of names for all.
        nsenter --net="$scratch/net/c$n" unshare --uts bash -c "hostname c$n && exec \"\$@\"" bash \
            "$FARSIDE" bench --pool "$pool" --machines 3 --rank $n --index race --patience 3 "$@" \
            >"$scratch/bench$n.out" 2>"$scratch/bench$n.err" &
        pid[$n]=$!
    done
}
finish() {
    wait "${pid[$1]}" 2>/dev/null
    code=$? last="farside bench at c$1" out=$(<"$scratch/bench$1.out") err=$(<"$scratch/bench$1.err")
}
await_load() {
    for _ in $(seq 600); do
        grep -q "^race *load" "$scratch/bench0.out" && return
        sleep 0.1
    done
    finish 0
    failed "does not load"
}

start --keys 3k --ops 2001 --workload load,a,d --threads 2 --depth 4
for n in 2 1 0; do
    finish $n
    expect_code 0
done
expect_out "3 machines, each with 2 threads"
grep -E "^race " <<<"$out"
[ "$(grep -cE "^race +(load|a|d) " <<<"$out")" -eq 3 ] || failed "does not have all rows"
run_at c1 pool check "$pool"
expect_code 0

start --keys 1k --ops 1g --workload load,c
await_load
kill -9 "${pid[1]}"
for n in 0 2; do
    finish $n
    expect_code 1
    expect_err "machine 1 (c1) has not answered for 3 s"
    echo "$err" | tail -1
done

# Its link is cut: c2 names what it cannot reach, and the others name c2.
start --keys 1k --ops 1g --workload load,c
await_load
at c2 ip link set eth0 down
for n in 0 1 2; do
    finish $n
    expect_code 1
    [ $n = 2 ] && expect_err "$a" || expect_err "machine 2 (c2)"
    echo "$err" | tail -1
done
at c2 ip link set eth0 up
await_nodes c2 "$pool"

start --keys 1k --ops 1g --workload load,c
await_load
kill_node a
for n in 0 1 2; do
    finish $n
    expect_code 1
    expect_err "$a"
    echo "$err" | tail -1
done
