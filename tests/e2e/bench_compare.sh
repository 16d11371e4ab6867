#!/usr/bin/env bash
# farside bench --compare measures each rival that is installed, says which package one needs that is
# not, and leaves no process and no file, also if it is interrupted or killed.
. "$(dirname "$0")/expect.bash"

small=(--keys 500 --ops 500 --rounds 2)
has_ucx() { [ -e "$BUILD/farside-ucx.so" ]; }
has_module() { [ -e "$BUILD/farside-rival-$1.so" ]; }
has_server() { command -v "$1" >/dev/null && has_ucx; }

expect_row() { # WORKLOAD STORE
    awk -v workload="$1" -v store="$2" '
        NF >= 5 && $2 ~ /^[a-z]/ { at = $1; name = $2 }
        NF >= 4 && $2 ~ /^[0-9]/ { name = $1 }
        at == workload && name == store { found = 1 }
        END { exit !found }' <<<"$out" || failed "has no row of $1 for $2"
}
expect_rows() { # STORE...
    expect_code 0
    for store in farside "$@"; do
        for workload in load c put a; do
            expect_row "$workload" "$store"
        done
        expect_out "  $store: "
    done
    [ -z "$(awk 'length > 100' <<<"$out")" ] || failed "is wider than 100 columns"
}

# ---- each rival ----
if has_module lmdb; then
    run bench --compare lmdb "${small[@]}" --depth 8
    expect_rows lmdb lmdb-batch
    run bench --compare lmdb "${small[@]}" --depth 8 --warmup 100
    expect_rows lmdb lmdb-batch
    expect_out "100 operations before each workload but load, to warm up"
    run bench --compare lmdb "${small[@]}" --key-size 600
    expect_code 1
    expect_err "LMDB has keys of up to 511 bytes"
fi
if has_module cuckoo; then
    run bench --compare cuckoo "${small[@]}" --threads 2
    expect_rows cuckoo cuckoo-string
    run bench --compare cuckoo "${small[@]}" --key-size 16-40 --value-size 16-400
    expect_rows cuckoo-string
    expect_out "left out: cuckoo: keys and values are inline if all have one size"
fi
for server in redis memcached; do
    program=$server
    [ $server = redis ] && program=redis-server
    if has_server "$program"; then
        run bench --compare $server "${small[@]}" --threads 2 --depth 16 --value-size 16-3000
        expect_rows $server
        run bench --compare $server "${small[@]}" --index sephash --workload b,miss --json -
        expect_code 0
        expect_out "\"store\": \"$server\""
        expect_out '"farside_ratio": {'
    fi
done

# ---- a rival that is missing ----
# A program that finds no servers, and one that finds no modules either.
there=$FARSIDE
mkdir "$scratch/bin"
cp "$FARSIDE" "$scratch/bin/farside"
no_path() { # PROGRAM SCRIPT
    printf '#!/bin/sh\nPATH=/nonexistent exec "%s" "$@"\n' "$1" >"$2"
    chmod +x "$2"
}
no_path "$FARSIDE" "$scratch/no_servers"
no_path "$scratch/bin/farside" "$scratch/nothing"

FARSIDE=$scratch/nothing
run bench --compare lmdb "${small[@]}"
expect_code 1
expect_no_out
expect_err "no farside-rival-lmdb.so, which is built where liblmdb-dev is installed"
run bench --compare all "${small[@]}"
expect_code 1
expect_err "nothing to compare with: lmdb: no farside-rival-lmdb.so"
FARSIDE=$scratch/no_servers
if has_ucx; then
    run bench --compare memcached "${small[@]}"
    expect_code 1
    expect_err "there is no program memcached in PATH: install the package memcached"
fi
if has_module lmdb; then
    run bench --compare all "${small[@]}"
    expect_rows lmdb
    expect_out "left out: redis: "
fi
FARSIDE=$there

# ---- wrong use ----
run bench --compare nothing
expect_code 2
expect_err "cannot compare with 'nothing' (available: lmdb, cuckoo, redis, memcached; or all)"
run bench --compare all --workload d
expect_code 2
expect_err "workload 'd' cannot be compared"
run bench --compare all --index all
expect_code 2
expect_err "--compare measures one index"
run bench --compare all --pool shm:x
expect_code 2
expect_err "without --pool"
run bench --compare all --threads 1,2
expect_code 2
expect_err "one number of --threads"
run bench --compare all --raw
expect_code 2
expect_err "without --processes, --raw"
run bench --compare all --rounds 0
expect_code 2
expect_err "--rounds"
run bench --rounds 3
expect_code 2
expect_err "--rounds is for --compare"

# ---- signals ----
left_files() { find /tmp /dev/shm -maxdepth 1 \( -name 'farside-server-*' -o -name 'farside-lmdb-*' \) 2>/dev/null; }
# Those of the processes that still run.
left_processes() { # PID...
    for pid in "$@"; do
        [ -e "/proc/$pid/stat" ] && ! grep -q ') Z ' "/proc/$pid/stat" && echo "$pid"
    done
}
# Starts far more work than there is time for, and sends the signal while a server runs.
end_by() { # SIGNAL RIVAL
    last="farside bench --compare $2, $1"
    "$FARSIDE" bench --compare "$2" --keys 500 --ops 1g --workload c >"$scratch/out" 2>"$scratch/err" &
    local pid=$! children=
    # Once the set-up is printed, the stores are measured: then a process of the first is there.
    for _ in $(seq 600); do
        children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
        grep -q "^networked" "$scratch/out" && [ -n "$children" ] && break
        sleep 0.1
    done
    [ -n "$children" ] || failed "starts no server"
    kill "-$1" "$pid"
    wait "$pid" 2>/dev/null
    code=$?
    out=$(<"$scratch/out")
    err=$(<"$scratch/err")
    expect_code $((128 + $(kill -l "$1")))
    # shellcheck disable=SC2086 # one word for each process
    for _ in $(seq 100); do # after KILL, the system ends them a moment later
        [ -z "$(left_processes $children)" ] && break
        sleep 0.1
    done
    # shellcheck disable=SC2086
    [ -z "$(left_processes $children)" ] || failed "leaves a process"
    [ -z "$(comm -13 "$scratch/before" <(left_files | sort))" ] || failed "leaves a file"
}
left_files | sort >"$scratch/before"
set -m # a script's background jobs ignore SIGINT unless it has job control
for server in redis memcached; do
    program=$server
    [ $server = redis ] && program=redis-server
    has_server "$program" || continue
    end_by INT $server
    expect_err "interrupted: 0 of 5 rounds are complete"
    end_by KILL $server
done
exit 0
