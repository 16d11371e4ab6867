#!/usr/bin/env bash
# Opening a pool of several nodes: what is printed names a node that is away, or one that is not of the
# pool.
. "$(dirname "$0")/hosts.bash"
make_hosts
start_node a --size 16m
start_node b --size 16m
start_node c0 --size 16m
start_node c1 --size 16m
other=$subnet.10:7000 new=$subnet.11:7000
run_at c2 put --pool "ucx://$a,$b" key value
expect_code 0
run_at c2 put --pool "ucx://$other" key other
expect_code 0

# Why it is refused, not to whom that was said.
refused() {
    run_at c2 get --pool "$1" key
    expect_code 1
    err=${err##*\'}
    expect_err "$2"
}
refused "ucx://$b,$a" "the memory given as node 0 is node 1 of its pool"
refused "ucx://$a" "node 0 belongs to a pool of 2 nodes, but 1 are given"
refused "ucx://$a,$b,$new" "node 0 belongs to a pool of 2 nodes, but 3 are given"
refused "ucx://$other,$b" "node 0 belongs to a pool of 1 nodes, but 2 are given"
refused "ucx://$new,$b" "$new has no pool yet, but $b is part of one"
refused "ucx://$a,$new" "node 1 holds no Farside pool"
refused "ucx://$a,$other" "node 1 belongs to another pool than node 0"
run_at c2 get --pool "ucx://$a,$a" key
expect_code 2
expect_err "$a and $a are the same memory node: list it once"
# Nobody listens; nobody is there; it was there. The pool is opened without the second node, but not without the
# first.
away() {
    run_at c2 get --pool "$1" key
    expect_err "node 1 ($2) is away"
}
away "ucx://$a,$subnet.2:7001?timeout=1000" "$subnet.2:7001"
away "ucx://$a,$subnet.99:7000?timeout=1000" "$subnet.99:7000"
refused "ucx://$subnet.2:7001,$b?timeout=1000" "($subnet.2:7001"
refused "ucx://$new,$subnet.99:7000?timeout=1000" "$subnet.99:7000, which it needs, is away"
must ip link set to-b down
away "ucx://$a,$b?timeout=1000" "$b"
refused "ucx://$b,$a?timeout=1000" "($b has not answered"
must ip link set to-b up
run_at c2 get --pool "ucx://$a,$b" key
expect_code 0
[ "$out" = value ] || failed "is not what was put"
run_at c2 get --pool "ucx://$other" key
expect_code 0
[ "$out" = other ] || failed "is not what was put"
