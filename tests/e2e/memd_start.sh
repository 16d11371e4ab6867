#!/usr/bin/env bash
# A memory node that cannot start says what is missing: memory, file descriptors, the port, the
# address. By default the systemd unit is not reachable from outside.
. "$(dirname "$0")/expect.bash"
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: nothing was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"

# More memory than there is. The limit of --size is 1t.
kib=$(awk '/^(MemTotal|SwapTotal):/ { sum += $2 } END { print sum }' /proc/meminfo)
if [ "$kib" -lt $((1 << 30)) ]; then
    run memd --listen ucx://127.0.0.1:0 --size 1t
    expect_code 1
    expect_no_out
    expect_err "more than this"
fi

# Too few file descriptors. All that may be had are taken, whatever the soft limit says.
last="farside memd, ulimit -n 40" out=
err=$(ulimit -n 40 && "$FARSIDE" memd --listen ucx://127.0.0.1:0 --size 16m 2>&1)
code=$?
expect_code 1
expect_err "too few file descriptors"
expect_err "left of 40"
(ulimit -S -n 40 && memd --size 16m && end_memd TERM "$node" && expect_code 0) || exit 1

# A port that another node listens at, and an address of another machine.
memd --size 16m
run memd --listen "ucx://$address" --size 16m
expect_code 1
expect_err "$address: the port is in use"
run memd --listen ucx://203.0.113.1:7000 --size 16m
expect_code 1
expect_err "203.0.113.1:7000: this machine does not have that address"

# A port that nobody listens at.
closed=$address
end_memd TERM "$node"
run get --pool "ucx://$closed" key
expect_code 1
expect_err "$closed: no connection; does a memory node listen at that port?"
memd --size 16m

# Neither side knows these options.
run memd --listen "ucx://127.0.0.1:0?rma=1" --size 16m
expect_code 2
expect_err "cannot listen at 'ucx://127.0.0.1:0?rma=1': ucx: has no option 'rma'"
run get --pool "ucx://$address?mode=rma" key
expect_code 2
expect_err "ucx: has no option 'mode'"

# Addresses of IPv6 that UCX does not serve, at either side; a name that has another one as well.
for host in '[::1]' '[fe80::1]' '[::ffff:127.0.0.1]'; do
    run memd --listen "ucx://$host:0" --size 16m
    expect_code 1
    expect_err "$host:0: UCX does not serve"
    run get --pool "ucx://$host:7000" key
    expect_code 1
    expect_err "$host:7000: UCX does not serve"
done
run get --pool "ucx://$address,[fd00::1]:7000" key
expect_code 1
expect_err "one is IPv4, the other IPv6"
run put --pool "ucx://localhost:${address##*:}" key value
expect_code 0

# What the unit starts by itself: an address of this machine, unless there is a secret.
unit=$BUILD/farside-memd.service
last=$unit code=0 out=$(sed -n 's/^Environment=FARSIDE_MEMD_OPTIONS=//p' "$unit") err=
expect_out "--listen ucx://"
[[ $out == *--secret-file* ]] || expect_out "--listen ucx://127.0.0.1:"
expect_out "--file %S/$(sed -n 's/^StateDirectory=//p' "$unit")/" # it keeps its contents

# A node without a secret that listens at all addresses says so.
for listen in 127.0.0.1 0.0.0.0; do
    : >"$scratch/all.out" # not what the last one said
    "$FARSIDE" memd --listen "ucx://$listen:0" --size 16m >"$scratch/all.out" 2>"$scratch/all.err" &
    node=$!
    until grep -q listening "$scratch/all.out" || ! kill -0 $node 2>/dev/null; do sleep 0.01; done
    kill -TERM $node
    wait $node
    last="farside memd at $listen" code=$? out=$(<"$scratch/all.out") err=$(<"$scratch/all.err")
    expect_code 0
    [ $listen = 0.0.0.0 ] || expect_no_err
done
expect_err "warning: there is no secret"
expect_err "--secret-file"
