#!/usr/bin/env bash
# The doctor finds what is wrong, on machines that are made of files, and with real pools.
. "$(dirname "$0")/expect.bash"

root=$scratch/root
unset UCX_TLS

put_file() { # PATH TEXT
    mkdir -p "$root$(dirname "$1")"
    printf '%s\n' "$2" >"$root$1"
}

limits() { # MEMLOCK NOFILE
    put_file /proc/self/limits "Limit                     Soft Limit           Hard Limit           Units
Max open files            $2                 $2                files
Max locked memory         $1                 $1                bytes"
}

port=/sys/class/infiniband/mlx5_0/ports/1
gid() { # INDEX GID TYPE
    put_file "$port/gids/$1" "$2"
    put_file "$port/gid_attrs/types/$1" "$3"
}

# A machine without faults: with one network card, and without UCX.
sound_machine() {
    rm -rf "$root"
    put_file /sys/devices/system/cpu/online 0-3,8
    put_file /sys/devices/system/node/online 0-1
    put_file /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor performance
    put_file /sys/devices/system/clocksource/clocksource0/current_clocksource tsc
    put_file /sys/kernel/mm/transparent_hugepage/enabled "always [madvise] never"
    put_file /sys/kernel/mm/transparent_hugepage/shmem_enabled "always within_size advise [never] deny force"
    put_file /proc/sys/kernel/osrelease 6.1.0-13-amd64
    put_file /proc/self/mounts "proc /proc proc rw 0 0
tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=300000000k 0 0"
    mkdir -p "$root/dev/shm"
    limits unlimited 4096
    put_file $port/state "4: ACTIVE"
    put_file $port/link_layer Ethernet
    gid 0 fe80:0000:0000:0000:0202:c9ff:fe00:0001 "IB/RoCE v1"
    gid 1 fe80:0000:0000:0000:0202:c9ff:fe00:0001 "RoCE v2"
    gid 2 0000:0000:0000:0000:0000:0000:0000:0000 ""
    put_file /dev/infiniband/uverbs0 ""
    put_file /dev/infiniband/rdma_cm ""
    put_file /etc/libibverbs.d/mlx5.driver "driver mlx5"
    put_file /usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so ""
}

says() { # LEVEL, CHECK, and words of the line
    grep -qE "^$1 +$2: .*$3" <<<"$out" || failed "does not say $1 for $2: $3"
}
advises() { expect_out "           $1"; }
examine() { run doctor --root "$root" "$@"; }

sound_machine
examine
expect_code 0
expect_no_err
for check in processors clock frequency "huge pages" "huge pages of shared memory" \
    "file descriptors" "ibverbs providers" "locked memory"; do
    says ok "$check" ""
done
says ok processors "5"
says ok NUMA "2 nodes"
says ok "RDMA port" "mlx5_0/1: 4: ACTIVE, Ethernet, 2 GIDs, RoCE v2 at index 1"
says warning UCX "is not installed"
expect_out "0 problems, "

# ---- the machine ----
put_file /sys/devices/system/cpu/online 0
examine
expect_code 0
says warning processors "only 1"

put_file /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor powersave
examine
says warning frequency powersave
advises "for measurements: cpupower"

put_file /sys/devices/system/clocksource/clocksource0/current_clocksource hpet
examine
says warning clock hpet

put_file /sys/kernel/mm/transparent_hugepage/enabled "always madvise [never]"
examine
says warning "huge pages" never
advises "echo always >"
put_file /sys/kernel/mm/transparent_hugepage/shmem_enabled "always within_size advise never [deny] force"
examine
says warning "huge pages of shared memory" deny
put_file /sys/kernel/mm/transparent_hugepage/shmem_enabled "always within_size advise [never] deny force"
put_file /proc/sys/kernel/osrelease 5.15.0
examine
says warning "huge pages of shared memory" never

limits unlimited 256
examine
says warning "file descriptors" "at most 256"

put_file /proc/self/mounts "shm /dev/shm tmpfs rw,size=65536k 0 0"
examine
says warning /dev/shm "only 64.0 MiB"
advises "make it larger"
put_file /proc/self/mounts ""
examine
expect_code 0
says warning /dev/shm "is not mounted"
examine "shm:$scratch/pool?size=16m"
expect_code 1
says problem /dev/shm "is not mounted"
says ok pool "there is none yet"
[ ! -e "$scratch/pool" ] || failed "created the pool"

# ---- RDMA ----
sound_machine
put_file $port/state "1: DOWN"
examine
expect_code 0
says warning "RDMA port" DOWN
advises "bring its network interface up"
says warning "RDMA devices" "none has a port"
put_file $port/link_layer InfiniBand
examine
advises "see the cable and the subnet manager"

sound_machine
gid 0 0000:0000:0000:0000:0000:0000:0000:0000 ""
gid 1 0000:0000:0000:0000:0000:0000:0000:0000 ""
examine
says warning "RDMA port" "0 GIDs"
advises "give its network interface an address"

sound_machine
rm -r "$root/dev/infiniband"
examine
says warning "RDMA files" uverbs0
advises "modprobe ib_uverbs"
says warning "RDMA files" rdma_cm
advises "modprobe rdma_ucm"

sound_machine
put_file /etc/libibverbs.d/siw.driver "driver siw"
examine
says warning "ibverbs providers" "siw is listed"
rm -r "$root/etc/libibverbs.d"
examine
says warning "ibverbs providers" none
advises "install them: apt install ibverbs-providers"

sound_machine
limits 8388608 4096
examine
says warning "locked memory" "at most 8.0 MiB"
rm -r "$root/sys/class/infiniband"
examine
says ok "RDMA devices" none
says ok "locked memory" "at most 8.0 MiB"

# What the URI needs is a problem.
rm -r "$root/etc/libibverbs.d"
examine "verbs://127.0.0.1:1?timeout=100"
expect_code 1
says problem "RDMA devices" "none has a port"
advises "without a card, Soft-RoCE does"
says problem "ibverbs providers" none
says problem "locked memory" "at most 8.0 MiB"

# ---- UCX, an old one and one without the module for RDMA ----
if command -v "${CC:-cc}" >/dev/null; then
    sound_machine
    mkdir -p "$root/usr/lib/ucx"
    ucx() { # VERSION
        rm -f "$root/usr/lib/libucp.so.0"
        "${CC:-cc}" -x c -shared -fPIC -o "$root/usr/lib/libucp.so.0" - \
            <<<"const char *ucp_get_version_string(void) { return \"$1\"; }"
    }
    ucx 1.13.1
    : >"$root/usr/lib/ucx/libuct_cma.so.0"
    examine
    says ok UCX "version 1.13.1"
    says warning "UCX transports" "none for RDMA"
    : >"$root/usr/lib/ucx/libuct_ib.so.0"
    examine
    says ok "UCX transports" "tcp, shared memory, cma, ib"
    UCX_TLS=tcp examine
    says warning UCX_TLS "to tcp"
    ucx 1.12.0
    examine
    says warning UCX "version 1.12.0; the oldest that is tested is 1.13"
fi

# ---- JSON, wrong use, output ----
examine --json
expect_code 0
[[ $out == "{"*"}" ]] || failed "is not JSON"
expect_out '"problems": 0'
expect_out '"level": "warning"'
run doctor nonsense
expect_code 2
expect_err "nonsense"
run doctor mem: more
expect_code 2
run doctor "other:x"
expect_code 1
says problem pool "no such fabric"
last="farside doctor >/dev/full"
"$FARSIDE" doctor >/dev/full 2>"$scratch/err"
code=$? err=$(<"$scratch/err")
expect_code 1
expect_err "cannot write the output"

# ---- pools ----
sound_machine
pool=shm:$scratch/pool
examine "$pool"
expect_code 1
says problem pool "does not exist"
run put --pool "$pool?size=8m&lease=60000&clients=10" key value
expect_code 0
clean() {
    run stat "$pool" --json
    expect_out '"clients": 1,'
}
examine "$pool"
expect_code 0
grep -qE '^ok +node 0: answers, 8.0 MiB; a READ of 8 bytes takes [0-9.]+ us' <<<"$out" ||
    failed "does not measure a round trip"
says ok memory "8.0 MiB, of which"
says ok sessions "1 of 10 are open"
says ok lease "60000 ms"
clean
FARSIDE_POOL=$pool run doctor --root "$root"
expect_code 0
says ok lease "60000 ms"
"$FARSIDE" doctor "$pool" | true
clean
echo "a text of mine, longer than a word" >"$scratch/text"
examine "shm:$scratch/text"
expect_code 1
says problem pool "something else"

# Hardly any memory is left, and most of the sessions are open.
run bench --pool "$pool" --index race --keys 1m --workload load --keep
run stat "$pool" --json
examine "$pool"
says warning memory "were never used"
advises "see what is free again or in use"
tiny=shm:$scratch/tiny
run put --pool "$tiny?size=8m&clients=1" key value
expect_code 0
examine "$tiny"
says warning sessions "1 of 1 are open"

# A session that was killed.
pool=shm:$scratch/killed
run put --pool "$pool?size=16m&lease=500" key value
"$FARSIDE" bench --pool "$pool" --index race --keys 1k --ops 1g --workload load,c >"$scratch/bench" 2>&1 &
pid=$!
for _ in $(seq 600); do # until its workload runs, and a session is open
    if grep -q "^race *load" "$scratch/bench"; then
        run stat "$pool" --json
        [[ $out == *'"clients": 1,'* ]] || break
    fi
    sleep 0.05
done
kill -KILL "$pid"
wait "$pid" 2>/dev/null
examine "$pool"
expect_code 0
says warning sessions "1 of them is silent"
advises "free what they hold: farside pool check URI --repair"
run pool check "$pool" --repair
examine "$pool"
says ok sessions "1 of"

# ---- memory nodes ----
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: no node was examined"
    exit 0
fi
. "$(dirname "$0")/memd.bash"
memd --size 64m
pool=ucx://$address
run doctor "$pool"
expect_code 0
says "(ok|warning)" "node 0" "answers, 64.0 MiB"
says ok pool "there is none yet"
run put --pool "$pool?lease=60000" key value
expect_code 0
run doctor "$pool"
expect_code 0
says ok sessions "1 of"
clean
# A signal, while the node does not answer.
kill -STOP "$node"
set -m
"$FARSIDE" doctor "$pool?timeout=10000" >"$scratch/out" 2>"$scratch/err" &
pid=$!
for _ in $(seq 600); do
    grep -q "fabrics: verbs" "$scratch/out" && break
    sleep 0.05
    kill -0 "$pid" 2>/dev/null || break
done
kill -TERM "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
code=$? out=$(<"$scratch/out") err=$(<"$scratch/err") last="farside doctor, SIGTERM"
kill -CONT "$node"
expect_code 143
clean
end_memd KILL "$node"
run doctor "$pool?timeout=500"
expect_code 1
says problem pool "${address}"
advises "see whether 'farside memd' runs there"
(umask 077 && echo "a secret that is long enough" >"$scratch/secret")
memd --size 64m --secret "$scratch/secret"
run doctor "ucx://$address"
expect_code 1
says problem pool "the memory node refused this client"
advises "use the same secret"
exit 0
