#!/usr/bin/env bash
# The link to a memory node is cut silently, and restored. Operations that need the node fail in
# time, with its name; others go on; then all of them work again.
. "$(dirname "$0")/hosts.bash"
make_hosts
timeout=1000
lease=$timeout # an operation that waits for a node is silent for longer
limit=10000 # for a connection, for an answer, and much more for a busy machine
pool="ucx://$a,$b?lease=$lease&timeout=$timeout"
start_node a --size 64m
start_node b --size 64m
start_clients "$pool" $limit
clients_make 200

for cut in b a; do
    must ip link set "to-$cut" down
    if [ $cut = b ]; then
        clients_make 50
    else
        sleep 4
    fi
    run_at c1 get --pool "$pool" --table race key # there is none, as the other node may know
    [ $cut = b ] && [ "$code" = 3 ] || expect_code 1
    expect_err "($subnet.${number[$cut]}:7000"
    must ip link set "to-$cut" up
    clients_make 200
    failed_for "$subnet.${number[$cut]}:7000"
    clients_make 200
    none_failed
done

# Packets are lost for so short a time that TCP bridges it, on a machine that is not too busy. (A
# link takes longer to come up.)
must at b nft add table inet cut
must at b nft add chain inet cut arriving '{ type filter hook input priority 0; policy drop; }'
sleep 0.2
must at b nft delete table inet cut
clients_make 100
forget_complaints

# A client's own link, and meanwhile the client is killed.
must ip link set to-c2 down
end_client 2 KILL
must ip link set to-b down
clients_make 20 0 1
must ip link set to-b up
must ip link set to-c2 up
clients_make 200 0 1
failed_for "$b"
await_nodes c2 "$pool"
start_client 2 "$pool" $limit
clients_make 100
end_clients
judge "$pool"
