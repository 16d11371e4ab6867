#!/usr/bin/env bash
# One node, then the other, is at the end of a slow link: operations take longer, and none fails.
. "$(dirname "$0")/hosts.bash"
make_hosts
pool="ucx://$a,$b?lease=60000&timeout=30000" # time enough, also on a busy machine
start_node a --size 64m
start_node b --size 64m
start_clients "$pool"
clients_make 100
for slow in b a; do
    must at "$slow" tc qdisc add dev eth0 root tbf rate 2mbit burst 8kb latency 400ms
    must tc qdisc add dev "to-$slow" root tbf rate 2mbit burst 8kb latency 400ms
    clients_make 100
    run_at c1 put --pool "$pool" --table by-hand "$slow" value
    expect_code 0
    must at "$slow" tc qdisc delete dev eth0 root
    must tc qdisc delete dev "to-$slow" root
done
clients_make 100
end_clients
judge "$pool"
