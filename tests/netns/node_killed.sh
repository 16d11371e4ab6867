#!/usr/bin/env bash
# A memory node is killed. Operations that need it fail in time, with its name; others go on. When
# it is back with its contents, all of them work again. Then it comes back without its contents.
. "$(dirname "$0")/hosts.bash"
make_hosts
timeout=1000
limit=10000 # for a connection, for an answer, and much more for a busy machine
pool="ucx://$a,$b?lease=$lease&timeout=$timeout"
start_node a --size 64m --file "$scratch/memory-a"
start_node b --size 64m --file "$scratch/memory-b"
start_clients "$pool" $limit
clients_make 200
none_failed

# The second node: some keys are on it, some are not.
kill_node b
clients_make 50
run_at c1 get --pool "$pool" --table race key # there is none, as the other node may know
[ "$code" = 3 ] || expect_code 1
expect_err "($b"
start_node b --file "$scratch/memory-b"
clients_make 200
failed_for "$b"
clients_make 200
none_failed

# The first one, which has the registry: nothing goes on without it.
kill_node a
run_at c1 get --pool "$pool" --table race key
expect_code 1
expect_err "($a"
sleep 3
start_node a --file "$scratch/memory-a"
clients_make 200
failed_for "$a"
clients_make 200
end_clients
judge "$pool"

# Without its contents.
for n in 0 1 2; do
    start_client $n "$pool" $limit
done
clients_make 100
kill_node b
rm "$scratch/memory-b"
start_node b --size 64m --file "$scratch/memory-b"
clients_make 50
for _ in $(seq 100); do
    lost=$(grep -l '^FAR_NODE_LOST' "$scratch"/c?.out | wc -l)
    [ "$lost" -eq 3 ] && break
    sleep 0.1
done
clients_make 50
last=clients code=0 out=$(cat "$scratch"/c?.out) err=
[ "$lost" -eq 3 ] || failed "do not notice that $b has lost its contents"
# Once they know, they do not say anything else.
for n in 0 1 2; do
    last="client $n" out=$(sed '1,/^FAR_NODE_LOST/d' "$scratch/c$n.out" | grep '^FAR_UNREACHABLE')
    expect_no_out
done
failed_for "$b"
end_clients
run_at c1 get --pool "$pool" --table race key
expect_code 1
expect_err "node 1 holds no Farside pool"
