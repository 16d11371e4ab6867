#!/usr/bin/env bash
# farside pool remove removes a shm: pool, and nothing that others use or that is no pool.
. "$(dirname "$0")/expect.bash"

name=e2e-remove-$$
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$scratch" "/dev/shm/farside-$name"' EXIT

new_pool() { # PLACE
    run put --pool "shm:$1?size=16m&lease=60000" key value
    expect_code 0
}

for place in "$name" "$scratch/pool"; do
    file=$place
    [[ $place == /* ]] || file=/dev/shm/farside-$place
    new_pool "$place"

    # Without a terminal it needs --yes, and changes nothing.
    run pool remove "shm:$place" </dev/null
    expect_code 2
    expect_err "there is no terminal to ask on: give --yes"
    [ -e "$file" ] || failed "removed it"

    # Options do not matter: they do not create a pool either.
    leaks=1
    run pool remove --yes "shm:$place?size=64m"
    expect_code 0
    expect_no_out
    expect_no_err
    leaks=0
    [ ! -e "$file" ] || failed "left $file"
    for force in "" --force; do
        # shellcheck disable=SC2086 # an option or none
        run pool remove --yes $force "shm:$place?size=16m"
        expect_code 1
        expect_err "'shm:$place?size=16m': there is no Farside pool there"
        [ ! -e "$file" ] || failed "created $file"
    done
done

# A terminal is asked.
if script -qec true /dev/null >/dev/null 2>&1; then
    for answer in n '' y; do
        new_pool "$name"
        last="farside pool remove, answer '$answer'"
        out=$(script -qec "'$FARSIDE' pool remove shm:$name" /dev/null <<<"$answer" 2>&1)
        code=$?
        expect_out "Remove the pool 'shm:$name' with 1 table? [y/N]"
        if [ "$answer" = y ]; then
            [ ! -e "/dev/shm/farside-$name" ] || failed "left it"
        else
            expect_out "the answer was not yes"
            [ -e "/dev/shm/farside-$name" ] || failed "removed it"
        fi
    done
fi

# Somebody uses it.
new_pool "$name"
"$FARSIDE" bench --pool "shm:$name" --keys 1k --ops 1g --workload update >/dev/null 2>&1 &
pid=$!
# At its beginning it has no session for moments: it is there when it was seen ten times in a row.
seen=0
for _ in $(seq 1200); do
    run stat "shm:$name" --json
    expect_code 0
    [[ $out == *'"clients": 1,'* ]] && seen=0 || seen=$((seen + 1))
    [ $seen -lt 10 ] || break
    sleep 0.05
done
run pool remove --yes "shm:$name"
expect_code 1
expect_err "other session"
expect_err "with --force the pool is removed all the same"
[ -e "/dev/shm/farside-$name" ] || failed "removed a pool in use"
run pool remove --yes --force "shm:$name"
expect_code 0
[ ! -e "/dev/shm/farside-$name" ] || failed "left it"
kill -0 "$pid" || failed "ended its user"
kill "$pid"
wait "$pid" 2>/dev/null
pid=

# Damage, and what is no pool.
new_pool "$scratch/pool"
printf 'XXXX' | dd of="$scratch/pool" bs=1 seek=24 conv=notrunc status=none
run pool remove --yes "shm:$scratch/pool"
expect_code 1
expect_err "With --force it is removed all the same"
[ -e "$scratch/pool" ] || failed "removed it"
run pool remove --yes --force "shm:$scratch/pool"
expect_code 0
[ ! -e "$scratch/pool" ] || failed "left it"
echo "a text of mine" >"$scratch/text"
for force in "" --force; do
    # shellcheck disable=SC2086
    run pool remove --yes $force "shm:$scratch/text"
    expect_code 1
    [ "$(<"$scratch/text")" = "a text of mine" ] || failed "changed the file"
done

# Pools that have no file.
run pool remove --yes --force mem:
expect_code 1
expect_err "a mem: pool is gone when its process ends"
for scheme in ucx verbs; do
    run pool remove --yes --force "$scheme://127.0.0.1:1"
    expect_code 1
    expect_err "stop each 'farside memd', and remove the file of its --file"
done

# Wrong use.
for wrong in "" "--yes shm:a more" "--no shm:a" "--yes nosuch:"; do
    # shellcheck disable=SC2086
    run pool remove $wrong
    expect_code 2
    expect_no_out
done
