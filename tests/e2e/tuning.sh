#!/usr/bin/env bash
# The tuning of a table is given as text to commands that create tables, and shown by stat.
. "$(dirname "$0")/expect.bash"

pool="shm:$scratch/pool"

# Every command that creates tables lists the parameters of the indexes.
for command in bench put; do
    run "$command" --help
    expect_code 0
    grep -qE '^  race +groups +.*, 2 to 340 \(85\)$' <<<"$out" || failed "does not list groups"
done

# So do the manual and the page of the index.
names=$(sed -n '/^1024). The names/,$p' <<<"$out" | awk 'NR > 1 { print $1, $2 }')
[ -n "$names" ] || failed "lists no names"
while read -r index name; do
    grep -q "^.It $index : Cm $name$" "$SOURCE/docs/man/farside.1" || failed "$name is not in the manual"
    grep -q "^| \`$name\` |" "$SOURCE/docs/index/$index.md" || failed "$name is not in $index.md"
done <<<"$names"

# A table that put creates.
run put --pool "$pool?size=64m" --tuning "groups=3" --table small key value
expect_code 0
expect_no_err
run put --pool "$pool" --table usual key value
expect_code 0
run stat --pool "$pool" --table small
expect_code 0
grep -qE '^  tuning +groups=3&depth=0&hot=4096$' <<<"$out" || failed "does not show the tuning"
grep -qE '^  slots +63 ' <<<"$out" || failed "has other slots than 3 groups"
run stat --pool "$pool" --json
expect_code 0
expect_out '"tuning": "groups=3&depth=0&hot=4096"'
expect_out '"tuning": "groups=85&depth=0&hot=4096"'

# For a table that exists it has no effect, and a note says so.
run put --pool "$pool" --tuning "groups=4" --table small key value
expect_code 0
expect_err "the table exists already, so --tuning has no effect"
run stat --pool "$pool" --table small
expect_out "groups=3"

# What stat shows can be given again.
shown=$(sed -nE 's/^  tuning +//p' <<<"$out")
run put --pool "$pool" --tuning "$shown" --table again key value
expect_code 0
run stat --pool "$pool" --table again --json
expect_out '"tuning": "groups=3&depth=0&hot=4096"'

# The benchmark's tables, and their twins.
run bench --index race --pool "$pool" --tuning groups=2 --keys 500 --ops 100 --workload load --raw --keep --json -
expect_code 0
expect_out '"tuning": "groups=2&depth=0&hot=4096"'
for table in bench-race bench-race-twin; do
    run stat --pool "$pool" --table "$table"
    expect_code 0
    expect_out "groups=2"
done
run bench --index race --tuning groups=2 --keys 500 --ops 100 --workload load
expect_code 0
expect_out "tuning: groups=2"
run bench --index race --keys 500 --ops 100 --workload load --json -
expect_out '"tuning": "groups=85&depth=0&hot=4096"'

# A bad tuning is refused before anything is created, and the message says what is possible.
for index in race all; do
    run bench --pool "$pool?size=1" --index "$index" --tuning grups=2
    expect_code 2
    expect_no_out
    expect_err "index race: unknown tuning 'grups' (known: groups=2..340, depth=0..18, hot=0..4m)"
done
run bench --index race --tuning "groups=2&groups=3"
expect_code 2
expect_err "tuning 'groups' is given twice"
run bench --index race --tuning groups
expect_code 2
expect_err "tuning 'groups' has no '='"
run bench --index race --tuning groups=341
expect_code 2
expect_err "tuning 'groups' takes a number from 2 to 340, not '341'"
run put --pool "$pool" --tuning groups=x --table none key value
expect_code 2
expect_err "tuning 'groups' takes a number from 2 to 340, not 'x'"
run stat --pool "$pool" --table none
expect_code 3
expect_err "no such table"

# Commands that create no tables refuse it.
for command in get del stat; do
    run "$command" --pool "$pool" --tuning groups=2 key
    expect_code 2
    expect_err "unknown option '--tuning'"
done
