#!/usr/bin/env bash
# A client that can reach the nodes, but cannot be reached: UCX's nodes connect back to their
# clients. It fails, while the nodes, with one thread each, go on serving all others.
. "$(dirname "$0")/hosts.bash"
make_hosts
pool="ucx://$a,$b?lease=$lease&timeout=5000"
start_node a --size 64m --threads 1
start_node b --size 64m --threads 1
must at c0 "$WORKER" make "$pool"
start_client 0 "$pool"
start_client 1 "$pool"
clients_make 100 0 1
must at c2 nft add table inet deaf
must at c2 nft add chain inet deaf arriving '{ type filter hook input priority 0; }'
must at c2 nft add rule inet deaf arriving 'tcp flags & (syn | ack) == syn drop'
run_at c2 get --pool "ucx://$a,$b?timeout=2000" --table race key
expect_code 1
expect_err "$subnet."
clients_make 100 0 1
must at c2 nft delete table inet deaf
for n in 0 1; do
    end_client $n TERM
    expect_code 0
    expect_no_err
done
judge "$pool"
