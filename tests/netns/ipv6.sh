#!/usr/bin/env bash
# Memory nodes at IPv6 addresses. Every host has an IPv4 address too. By default UCX would size its
# connections for that one, and the first connection by IPv6 would break the node.
. "$(dirname "$0")/hosts.bash"
make_hosts
prefix=fd00:231:
for host in "${!number[@]}"; do
    at "$host" ip -6 address add "$prefix:${number[$host]}/64" dev eth0 nodad 2>"$scratch/err" ||
        skip "no IPv6: $(<"$scratch/err")"
done
pool="ucx://[$prefix:1]:7000,[$prefix:2]:7000?lease=60000&timeout=30000" # time enough, also on a busy machine
listen="[$prefix:1]" start_node a --size 64m
listen="[::]" start_node b --size 64m
start_clients "$pool"
clients_make 200

# Addresses that UCX does not serve: the connection fails, and the node goes on.
run_at b get --pool "ucx://[::1]:7000" key
expect_code 1
expect_err "UCX does not serve"
run_at b get --pool "ucx://$b?timeout=1000" key
expect_code 1
clients_make 100
none_failed
end_clients
judge "$pool"
for host in a b; do
    kill "${node[$host]}"
    wait "${node[$host]}"
    code=$? last="the node at $host" out= err=$(grep -v "there is no secret" "$scratch/$host.err")
    expect_code 0
    expect_no_err
done
