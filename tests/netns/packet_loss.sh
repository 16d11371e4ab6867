#!/usr/bin/env bash
# Packets to all hosts are lost: operations take longer, and none fails.
. "$(dirname "$0")/hosts.bash"
make_hosts
pool="ucx://$a,$b?lease=60000&timeout=30000" # time enough, also on a busy machine
start_node a --size 64m
start_node b --size 64m
start_clients "$pool"
clients_make 100
for host in "${!number[@]}"; do
    must at "$host" nft add table inet loss
    must at "$host" nft add chain inet loss arriving '{ type filter hook input priority 0; }'
    must at "$host" nft add rule inet loss arriving meta l4proto tcp numgen random mod 1000 '<' 15 \
        counter drop
done
clients_make 100
# New connections come about as well.
run_at c1 put --pool "$pool" --table by-hand key value
expect_code 0
run_at c2 get --pool "$pool" --table by-hand key
expect_code 0
for host in a b; do
    must at "$host" nft list ruleset
    last="nft list ruleset" out=$(<"$scratch/out") code=0 err=
    [[ $out =~ packets\ [1-9] ]] || failed "no packet was lost at $host"
done
for host in "${!number[@]}"; do
    must at "$host" nft delete table inet loss
done
end_clients
judge "$pool"
