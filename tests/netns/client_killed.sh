#!/usr/bin/env bash
# A client is killed in the middle of its work, several times: the others go on, none of their
# operations fails, and the client that takes its place finds everything that was confirmed to it.
. "$(dirname "$0")/hosts.bash"
make_hosts
pool="ucx://$a,$b?lease=$lease"
start_node a --size 64m
start_node b --size 64m
start_clients "$pool"
for victim in 0 1 2 0; do
    clients_make 200
    end_client $victim KILL
    [ "$code" -eq 137 ] || failed "was not at work any more"
    clients_make 200 $(((victim + 1) % 3)) $(((victim + 2) % 3))
    start_client $victim "$pool"
done
clients_make 200
end_client 1 KILL
end_client 2 KILL
# Dead clients do not hold up the last one, nor does removing them.
run_at c1 pool check --repair "$pool"
expect_code 0
clients_make 200 0
end_client 0 TERM
expect_code 0
expect_no_err
sleep 1.5 # until nothing of the killed can happen any more
judge "$pool"
