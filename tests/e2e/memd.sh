#!/usr/bin/env bash
# A memory node: what one command puts, the next one gets. The node reports what it does, ends on a
# signal, and keeps its contents in a file. Errors distinguish lost contents from a node that is away.
. "$(dirname "$0")/expect.bash"
"$FARSIDE" memd --help >/dev/null
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: nothing was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"

# Wrong use.
run memd --size 16m
expect_code 2
expect_err "missing option --listen URI"
run memd --listen ucx://127.0.0.1:0
expect_code 2
expect_err "missing option --size BYTES"
run memd --listen ucx://127.0.0.1 --size 16m
expect_code 2
expect_err "has no :port"
run memd --listen tcp://127.0.0.1:0 --size 16m
expect_code 2
expect_err "a memory node cannot listen at 'tcp:'"

# One node.
memd --size 64m
first=$node
pool=ucx://$address
run put --pool "$pool" key value
expect_code 0
expect_no_err
run get --pool "$pool" key
expect_code 0
[ "$out" = value ] || failed "is not what was put"
run del --pool "$pool" key
expect_code 0
run get --pool "$pool" key
expect_code 3
run bench --pool "$pool" --keys 2k --ops 2k --threads 2 --workload load,a
expect_code 0
run stat --pool "$pool"
expect_code 0
expect_out "node $address"
expect_out "batches"
run stat --pool "$pool" --json
expect_code 0
expect_out '"refused": 0'

kill -USR1 "$first"
for _ in $(seq 600); do
    grep -q '^fenced ' "$scratch/memd.out" && break
    sleep 0.05
done
last="farside memd, SIGUSR1" out=$(<"$scratch/memd.out") err=$(<"$scratch/memd.err")
expect_out "verbs "
expect_no_err
grep -q '^connects [1-9]' <<<"$out" || failed "has not counted connections"
end_memd TERM "$first"
expect_code 0

run get --pool "$pool?timeout=2000" key
expect_code 1
expect_err "cannot be reached"
expect_err "$address"

# In a file: over an orderly end, and over a sudden one.
memd --size 32m --file "$scratch/node"
pool=ucx://$address
port=${address##*:}
run put --pool "$pool" key kept
expect_code 0
end_memd TERM "$node"
expect_code 0
PORT=$port memd --file "$scratch/node"
run get --pool "$pool" key
expect_code 0
[ "$out" = kept ] || failed "has not kept it"
run memd --listen ucx://127.0.0.1:0 --file "$scratch/node"
expect_code 1
expect_err "in use by another node"
end_memd KILL "$node"
run memd --listen ucx://127.0.0.1:0 --file "$scratch/node" --size 16m
expect_code 2
expect_err "holds a node of 33554432 bytes"
PORT=$port memd --file "$scratch/node" --size 32m
run get --pool "$pool" key
expect_code 0
[ "$out" = kept ] || failed "has not kept it"
end_memd INT "$node"
expect_code 0
echo "a text of mine" >"$scratch/text"
run memd --listen ucx://127.0.0.1:0 --file "$scratch/text" --size 16m
expect_code 1
expect_err "does not hold a node's memory"
[ "$(<"$scratch/text")" = "a text of mine" ] || failed "changed the file"

# Several nodes; one that is not there is named.
memd --size 16m
one=$address
memd --size 24m
two=$address two_pid=$node
memd --size 16m
three=$address
pool=ucx://$one,$two,$three
run put --pool "$pool" key value
expect_code 0
run stat --pool "$pool"
expect_code 0
expect_out "3 nodes"
expect_out "node $three"
run get --pool "ucx://$one,$three" key
expect_code 1
expect_err "a pool of 3 nodes, but 2 are given"
end_memd KILL "$two_pid"
run get --pool "$pool?timeout=2000" key
expect_err "node 1 ($two) is away"

# It came back without what it held.
PORT=${two##*:} memd --size 24m
run get --pool "$pool" key
expect_code 1
