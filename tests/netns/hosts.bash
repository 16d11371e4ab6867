# For the scripts of this folder: hosts a and b, which are memory nodes, and c0, c1 and c2, which
# are clients; each a network namespace with an address of its own, all joined by veth to one
# bridge.
#
# A script that reads this runs again in namespaces of its own for network, mounts and processes.
# There, and nowhere else, are all interfaces, addresses and rules, and with its first process,
# which is the script, everything in them ends: nothing can be left behind, however the script ends.
# Exit status 77: skipped.
skip() {
    echo "skipped: $1"
    exit 77
}

if [ -z "${INSIDE:-}" ]; then
    for tool in ip nft tc unshare nsenter; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || skip "there is no $tool"
    done
    "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric" && skip "built without ucx"
    own=(unshare --net --mount --pid --fork --kill-child --mount-proc)
    [ "$(id -u)" -eq 0 ] || own+=(--map-root-user)
    "${own[@]}" true 2>/dev/null || skip "no privilege to make network namespaces"
    INSIDE=1 exec "${own[@]}" env PATH="$PATH:/usr/sbin:/sbin" bash "$0" "$@"
fi

# What it makes on the way is in memory that only it sees, and that ends with it, too.
mount -t tmpfs none /run && export TMPDIR=/run || exit 1
. "$(dirname "${BASH_SOURCE[0]}")/../e2e/expect.bash"
trap - EXIT
trap 'exit 130' INT TERM # the first process of a namespace has no default for them
subnet=10.231.0
a=$subnet.1:7000 b=$subnet.2:7000
lease=2000
declare -A number=([a]=1 [b]=2 [c0]=10 [c1]=11 [c2]=12) node client

must() {
    "$@" >"$scratch/out" 2>"$scratch/err" && return
    last="$*" code=$? out=$(<"$scratch/out") err=$(<"$scratch/err")
    failed "${BASH_SOURCE[1]##*/}:${BASH_LINENO[0]}: did not succeed"
}

# at HOST COMMAND...
at() { nsenter --net="$scratch/net/$1" "${@:2}"; }

make_hosts() {
    mkdir "$scratch/net"
    ip link add br0 type bridge 2>"$scratch/err" || skip "no bridge: $(<"$scratch/err")"
    must ip link set br0 up
    for host in "${!number[@]}"; do
        : >"$scratch/net/$host"
        must unshare --net="$scratch/net/$host" true
        # The other end to the namespace of process 1, which is this script.
        must at "$host" ip link add eth0 type veth peer name "to-$host" netns 1
        must ip link set "to-$host" master br0 up
        must at "$host" ip address add "$subnet.${number[$host]}/24" dev eth0
        must at "$host" ip link set lo up
        must at "$host" ip link set eth0 up
    done
}

# start_node HOST OPTION...; at another address than its own with listen=ADDRESS.
start_node() {
    local host=$1
    shift
    : >"$scratch/$host.out"
    nsenter --net="$scratch/net/$host" "$FARSIDE" memd \
        --listen "ucx://${listen:-$subnet.${number[$host]}}:7000" "$@" \
        >"$scratch/$host.out" 2>"$scratch/$host.err" &
    node[$host]=$!
    for _ in $(seq 600); do
        grep -q '^listening' "$scratch/$host.out" && return
        kill -0 "${node[$host]}" 2>/dev/null || break
        sleep 0.05
    done
    last="farside memd at $host" code=? out=$(<"$scratch/$host.out") err=$(<"$scratch/$host.err")
    failed "is not ready"
}

kill_node() {
    kill -9 "${node[$1]}"
    wait "${node[$1]}" 2>/dev/null
}

# run, of expect.bash, at a host.
run_at() {
    at_host() { at "$host" "$program" "$@"; }
    local program=$FARSIDE host=$1 FARSIDE=at_host
    run "${@:2}"
}

# await_nodes HOST POOL: a link that was set up takes a while until it carries anything.
await_nodes() {
    for _ in {1..100}; do
        run_at "$1" stat --pool "$2"
        [ "$code" = 0 ] && return
        sleep 0.1
    done
    failed "$1 does not reach the nodes"
}

# Clients of the pool: start_clients POOL [LIMIT_MS], and one of them: start_client N POOL
# [LIMIT_MS].
start_client() {
    local n=$1 pool=$2
    nsenter --net="$scratch/net/c$n" "$WORKER" work "$pool" "$scratch/ledger" "$n" ${3:+"$3"} \
        >>"$scratch/c$n.out" 2>>"$scratch/c$n.err" &
    client[$n]=$!
}

start_clients() {
    must at c0 "$WORKER" make "$1"
    for n in 0 1 2; do
        start_client $n "$@"
    done
}

# clients_make COUNT [N...]: each of them makes that many operations with success.
clients_make() {
    local n count=$1
    shift
    [ $# -gt 0 ] || set -- 0 1 2
    for n; do
        "$WORKER" await "$scratch/ledger" "$n" "$count" 2>"$scratch/err" && continue
        last="client $n" code=? out=$(tail -5 "$scratch/c$n.out")
        err=$(cat "$scratch/err" "$scratch/c$n.err")
        failed "does not get on"
    done
}

end_client() {
    kill "-$2" "${client[$1]}" 2>/dev/null
    wait "${client[$1]}" 2>/dev/null
    code=$?
    last="client $1" out=$(tail -5 "$scratch/c$1.out") err=$(<"$scratch/c$1.err")
}

# All end in order, every acknowledged change is there, and nothing is wrong with the pool.
end_clients() {
    for n in 0 1 2; do
        end_client $n TERM
        expect_code 0
        expect_no_err
    done
}

judge() {
    must at c1 "$WORKER" verify "$1" "$scratch/ledger"
    run_at c2 pool check --repair "$1"
    expect_code 0
    run_at c0 pool check "$1"
    expect_code 0
    must at c1 "$WORKER" verify "$1" "$scratch/ledger"
    cat "$scratch/out"
}

# The errors of the clients since the last call, except those of a busy machine: it may let a client
# stand still for as long as its lease, or a node until a batch is too late.
complaints() {
    last=clients code=0 err=
    out=$(cat "$scratch"/c?.out | grep -v -e '^FAR_FENCED' -e 'did not execute a batch')
}

forget_complaints() {
    for n in 0 1 2; do
        : >"$scratch/c$n.out"
    done
}

# No operation has failed since the last look.
none_failed() {
    complaints
    expect_no_out
}

# Some have, each for lack of this node.
failed_for() {
    complaints
    [ -n "$out" ] || failed "no operation failed while $1 was away"
    sort <<<"$out" | awk -v node="$1" '{ count[$1]++; if ($3 > longest) longest = $3 }
        END { printf "%s:", node; for (name in count) printf " %d %s,", count[name], name
              print " the longest after", longest, "ms" }'
    out=$(grep -v -F -e "$1" <<<"$out")
    expect_no_out
    forget_complaints
}
