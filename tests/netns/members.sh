#!/usr/bin/env bash
# A pool with three voters, of which one is a witness, on hosts whose network parts: the side with most voters goes on,
# the other one says that there is no majority, and when the network is whole again, all agree.
. "$(dirname "$0")/hosts.bash"
number[w]=3
make_hosts
witness=$subnet.3
pool="ucx://$a,$b,$witness:7000?lease=$lease&timeout=2000"
start_node a --size 64m --file /run/a
start_node b --size 64m --file /run/b
start_node w --witness --file /run/w
await_nodes c0 "$pool&voters=3"
run_at c0 put --pool "$pool" key value
expect_code 0
run_at c0 pool members "$pool"
expect_out "3 voters, 3 answer, 2 needed; view 1"

# c0 reaches a and nothing else of the pool. a keeps data, but alone it is no majority.
part() { must at c0 nft -f - <<<"table ip part { chain out { type filter hook output priority 0; ip daddr { $subnet.2, $witness } drop; }; }"; }
part
run_at c0 get --pool "$pool" key
expect_code 1
expect_err "only 1 of 3 voters answer"
run_at c0 pool members "$pool" --out 1
expect_code 1
expect_err "only 1 of 3 voters answer"

# Meanwhile the others go on, and put a out, which they could not do if c0 had been first.
run_at c1 pool members "$pool" --out 0
expect_code 0
expect_out "2 voters, 2 answer, 2 needed; view 2"
run_at c1 get --pool "$pool" key
expect_code 0
[ "$out" = value ] || failed "is not what was put"

# The network is whole again: c0 learns what the others have decided, and its own wish makes no sense any more.
must at c0 nft delete table ip part
run_at c0 pool members "$pool" --out 1
expect_code 2
expect_err "only 2 voters are left, and 2 are needed"
run_at c0 pool members "$pool" --in 0
expect_code 0
expect_out "3 voters, 3 answer, 2 needed; view 3"

# Clients at work do not notice that views change.
start_clients "$pool"
clients_make 300
for i in 1 2 3; do
    run_at c1 pool members "$pool" --out 2
    expect_code 0
    clients_make 300
    run_at c1 pool members "$pool" --in 2
    expect_code 0
    clients_make 300
done
end_clients
none_failed
run_at c1 stat --pool "$pool"
expect_code 0
expect_out "view 9"
judge "$pool"
