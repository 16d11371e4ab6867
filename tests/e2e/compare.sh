#!/usr/bin/env bash
# farside compare measures each rival that is installed, says which package one needs that is
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
    run compare lmdb "${small[@]}" --depth 8
    expect_rows lmdb lmdb-batch
    run compare lmdb "${small[@]}" --depth 8 --warmup 100
    expect_rows lmdb lmdb-batch
    expect_out "100 operations before each workload but load, to warm up"
    run compare lmdb "${small[@]}" --key-size 600
    expect_code 1
    expect_err "LMDB has keys of up to 511 bytes"
fi
if has_module cuckoo; then
    run compare cuckoo "${small[@]}" --threads 2
    expect_rows cuckoo cuckoo-string
    run compare cuckoo "${small[@]}" --key-size 16-40 --value-size 16-400
    expect_rows cuckoo-string
    expect_out "left out: cuckoo: keys and values are inline if all have one size"
fi
for server in redis memcached; do
    program=$server
    [ $server = redis ] && program=redis-server
    if has_server "$program"; then
        run compare $server "${small[@]}" --threads 2 --depth 16 --value-size 16-3000
        expect_rows $server
        run compare $server "${small[@]}" --index sephash --workload b,miss --json -
        expect_code 0
        expect_out "\"index\": \"$server\""
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
run compare lmdb "${small[@]}"
expect_code 1
expect_no_out
expect_err "no farside-rival-lmdb.so, which is built where liblmdb-dev is installed"
run compare all "${small[@]}"
expect_code 1
expect_err "nothing to compare with: lmdb: no farside-rival-lmdb.so"
FARSIDE=$scratch/no_servers
if has_ucx; then
    run compare memcached "${small[@]}"
    expect_code 1
    expect_err "there is no program memcached in PATH: install the package memcached"
fi
if has_module lmdb; then
    run compare all "${small[@]}"
    expect_rows lmdb
    expect_out "left out: redis: "
fi
FARSIDE=$there

# ---- wrong use ----
run compare nothing
expect_code 2
expect_err "cannot compare with 'nothing' (available: lmdb, cuckoo, redis, memcached; or all)"
run compare all --workload d
expect_code 2
expect_err "workload 'd' cannot be compared"
run compare all --index all
expect_code 2
expect_err "all"
run compare all --threads 1,2
expect_code 2
expect_err "--threads"
run compare all --pool shm:x
expect_code 2
expect_err "--pool"
run compare all --rounds 0
expect_code 2
expect_err "--rounds"
run compare lmdb redis
expect_code 2
expect_err "unexpected argument 'redis'"
run bench --compare lmdb,redis --depth 8
expect_code 2
expect_err "--compare is a command of its own: farside compare lmdb,redis"

# ---- files ----
if has_module lmdb; then
    cd "$scratch" || exit 1
    run compare lmdb "${small[@]}" --workload load,c --json json --report page.html --csv table.csv
    expect_code 0
    expect_no_err
    expect_row load lmdb
    [ "$(head -c 15 page.html)" = "<!DOCTYPE html>" ] || failed "is no page"
    [ "$(tail -n 1 page.html)" = "</html>" ] || failed "is not a whole page"
    grep -q "embedded stores" page.html || failed "does not say which stores"
    # a row for each store, workload and round
    [ "$(cut -d, -f1,2,4,5 table.csv | tail -n +2 | sort -u | wc -l)" -eq 8 ] || failed "lacks a row: $(<table.csv)"
    run report --csv - json
    expect_code 0
    [ "$out" = "$(<table.csv)" ] || failed "has other rows than the comparison"
    rate=$(grep -m 1 -oE '"ops_per_s": [0-9.]+' json)
    grep -q ",${rate#* }," table.csv || failed "has another throughput than the JSON"
    run compare lmdb "${small[@]}" --json nowhere/json --report other.html
    expect_code 1
    [ -z "$(ls other.html* 2>/dev/null)" ] || failed "leaves a part behind"
fi

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
    last="farside compare $2, $1"
    "$FARSIDE" compare "$2" --keys 500 --ops 1g --workload c >"$scratch/out" 2>"$scratch/err" &
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
