#!/usr/bin/env bash
# table list, create and drop.
. "$(dirname "$0")/expect.bash"

export FARSIDE_POOL=shm:$scratch/pool
expect_exactly() { [ "$out" = "$(printf '%s\n' "$@")" ] || failed "prints something wrong"; }

leaks=1
run table list --pool "$FARSIDE_POOL?size=32m"
expect_code 0
expect_no_out
expect_no_err

run table create people
expect_code 0
expect_no_out
expect_no_err
leaks=0
run table create --index chime ordered
expect_code 0
run table create --tuning groups=3 small
expect_code 0
run table create $'caf\xe9'
expect_code 0
run put --table people ann 1
expect_code 0
leaks=1
run table list
expect_code 0
expect_exactly $'caf\\xe9\trace' $'ordered\tchime' $'people\trace' $'small\trace'
run table list --count
expect_code 0
grep -q $'^people\trace\t1\tgroups=85&depth=0&hot=4096$' <<<"$out" || failed "does not count"
grep -q $'^small\trace\t0\tgroups=3&depth=0&hot=4096$' <<<"$out" || failed "does not show the tuning"
run table list --json --count
expect_code 0
expect_out '"name": "caf\\xe9"'
expect_out '"name_hex": "636166e9"'
expect_out '"index": "chime"'
expect_out '"keys": 1'
expect_out '"tuning": "groups=3&depth=0&hot=4096"'
leaks=0
run table list --json
[[ $out != *tuning* ]] || failed "reads every table"

# What the table is made for.
run table create --expected-keys 10k roomy
expect_code 0
run stat --table roomy --json
slots=$(sed -n 's/.*"slots": \([0-9]*\).*/\1/p' <<<"$out")
[ "$slots" -ge 10000 ] || failed "has no room for the expected keys"
run table drop roomy
expect_code 0

# What exists already is left alone.
run table create --index chime people
expect_code 4
expect_no_out
expect_err "farside table create: cannot create the table 'people': a table of that name already exists"
run get --table people ann
[ "$out" = 1 ] || failed "lost the key"

# What is wrong with the call changes nothing.
before=$("$FARSIDE" table list)
for wrong in "--index btree new" "--tuning grups=2 new" "--tuning groups=1 new" "--expected-keys x new" "" "a b"; do
    # shellcheck disable=SC2086 # options and arguments
    run table create $wrong
    expect_code 2
    expect_no_out
done
run table create --tuning grups=2 new
expect_err "unknown tuning 'grups' (known: groups=2..340"
run table create ''
expect_code 2
run table create $'new\nline'
expect_code 2
run table create "$(printf 'x%.0s' $(seq 64))"
expect_code 2
[ "$("$FARSIDE" table list)" = "$before" ] || failed "changed the tables"

# A table of another index is not dropped; one that does not exist is missing.
run table drop --index chime people
expect_code 1
expect_err "the table has another index"
run table drop people
expect_code 0
expect_no_out
expect_no_err
run table drop people
expect_code 3
expect_err "farside table drop: cannot open the table 'people': no such table"
run table create -- -odd
expect_code 0
run table drop -- -odd
expect_code 0
run table list
expect_exactly $'caf\\xe9\trace' $'ordered\tchime' $'small\trace'

# Wrong use.
for wrong in "" rename "list more" "drop" "drop a b"; do
    # shellcheck disable=SC2086
    run table $wrong
    expect_code 2
    expect_no_out
done
run table rename
expect_err "unknown subcommand 'rename' (available: list, create, drop)"
run table
expect_err "missing subcommand (available: list, create, drop)"
run pool check
expect_code 0
