#!/usr/bin/env bash
# One of three memory nodes is away, and a client dies meanwhile, which the others try to shut out.
# Operations that need only the other two nodes do not become slower. Links are slow, so that round
# trips are measured and not the machine.
. "$(dirname "$0")/hosts.bash"
make_hosts
timeout=1000
lease=1000
c=$subnet.${number[c2]}:7000
pool="ucx://$a,$b,$c?lease=$lease&timeout=$timeout"
for host in a b c2; do
    start_node $host --size 64m
done
must at c0 "$WORKER" make "$pool"
start_client 1 "$pool" 60000
clients_make 20 1
coproc at c0 "$WORKER" away "$pool" 2>"$scratch/away.err"
at_work=$COPROC_PID to=${COPROC[1]} from=${COPROC[0]}

# order [ORDER]: gives it, and takes what is answered.
order() {
    [ $# -eq 0 ] || echo "$*" >&"$to"
    read -r -t 120 -u "$from" answer && return
    last="worker away: $*" code=? out= err=$(<"$scratch/away.err")
    failed "does not answer"
}

order
must ip link set to-c2 down
order sort # the first ones find out that it is away
order sort
echo "$answer"
[[ $answer != *" 0 away" && $answer != "0 there "* ]] || {
    last=sort code=0 out=$answer err=
    failed "keys are not on all nodes"
}
must ip link set to-c2 up
order heal
for host in a b; do
    must at "$host" tc qdisc add dev eth0 root tbf rate 4mbit burst 16kb latency 10s
done
order measure 5000
echo "all there: $answer"
before=${answer%% *}
must ip link set to-c2 down
end_client 1 KILL
for _ in 1 2 3; do # again if the machine was busy with something else
    order measure 8000 # leases enough to find the dead client
    echo "one away: $answer"
    away=${answer%% *}
    [ "$away" -gt $((3 * before)) ] || break
done
last="worker away" code=0 out=$answer err=$(<"$scratch/away.err")
[[ $answer != *"; 0 failed" ]] || failed "nothing needed the node that is away"
[ "$away" -le $((3 * before)) ] || failed "takes more than three times as long as before ($before us)"

# The dead client was shut out where that was possible.
kill -USR1 "${node[a]}"
for _ in $(seq 100); do
    fences=$(sed -n 's/^fences //p' "$scratch/a.out")
    [ -n "$fences" ] && break
    sleep 0.1
done
last="node a" out=$(<"$scratch/a.out") err=
[ "${fences:-0}" -ge 1 ] || failed "nobody tried to shut out the dead client"

must ip link set to-c2 up
for host in a b; do
    must at "$host" tc qdisc delete dev eth0 root
done
order heal
eval "exec $to>&-"
wait "$at_work"
code=$?
last="worker away" out= err=$(<"$scratch/away.err")
expect_code 0
expect_no_err
