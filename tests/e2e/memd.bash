# For the scripts that need memory nodes. Nodes listen on free ports of the loopback interface, and
# end with the script.
nodes=()
trap '{ for node in "${nodes[@]}"; do kill -9 "$node"; done; wait; } 2>/dev/null; rm -rf "$scratch"' EXIT

# Starts a node with these options; $node is its process, $address host:port. PORT=n for a port,
memd() {
    : >"$scratch/memd.out" # not what the last one said
    "$FARSIDE" memd --listen "ucx://127.0.0.1:${PORT:-0}" "$@" \
        >"$scratch/memd.out" 2>"$scratch/memd.err" &
    node=$!
    nodes+=("$node")
    for _ in $(seq 600); do
        address=$(sed -n 's,^listening at ucx://,,p' "$scratch/memd.out")
        [ -n "$address" ] && return
        kill -0 "$node" 2>/dev/null || break
        sleep 0.05
    done
    last="farside memd $*" code=? out=$(<"$scratch/memd.out") err=$(<"$scratch/memd.err")
    failed "is not ready"
}

# Ends the node with a signal; $code is its exit status.
end_memd() {
    kill "-$1" "$2"
    wait "$2" 2>/dev/null
    code=$?
}
