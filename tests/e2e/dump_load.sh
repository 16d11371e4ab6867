#!/usr/bin/env bash
# farside dump and load: everything comes back, in both formats. What was damaged is refused at the first
# record that is wrong, with its place; what was loaded before is reported, and a load can go on.
. "$(dirname "$0")/expect.bash"

export FARSIDE_POOL=shm:$scratch/pool
copies=0

# Makes an empty pool, and sets $copy to its URI.
new_copy() {
    rm -f "$scratch/copy$copies"
    copies=$((copies + 1))
    copy=shm:$scratch/copy$copies
    run stat --pool "$copy?size=64m"
    expect_code 0
}

contents() { # URI: all tables with their index and tuning, and all pairs
    "$FARSIDE" table list --pool "$1" --count
    "$FARSIDE" table list --pool "$1" | while IFS=$'\t' read -r table _; do
        "$FARSIDE" list --pool "$1" --table "$table" --hex | sort
    done
}

run stat --pool "$FARSIDE_POOL?size=64m"
for index in $(indexes); do
    run bench --keep --index "$index" --keys 300 --ops 1 --workload load
    expect_code 0
done
run put --table odd --tuning groups=3 --hex 00ff0a 'a\b'
run put --table odd 'tab	key' "two
lines"
run put --table odd grün ''
head -c 300000 /dev/urandom >"$scratch/bytes"
run put --table odd bytes <"$scratch/bytes"
run table create empty
expect_code 0
whole=$(contents "$FARSIDE_POOL")
pairs=$((300 * $(indexes | wc -l) + 4))

# There and back.
leaks=1
for json in "" --json; do
    # shellcheck disable=SC2086 # an option or none
    run dump $json "$scratch/dump"
    expect_code 0
    expect_no_err
    expect_out "$(($(indexes | wc -l) + 2)) tables, $pairs pairs, "
    [ "$(stat -c %a "$scratch/dump")" = 600 ] || failed "others can read the dump"
    run load --check "$scratch/dump"
    expect_code 0
    expect_no_err
    expect_out "$pairs pairs"
    new_copy
    run load --pool "$copy" "$scratch/dump"
    expect_code 0
    expect_no_err
    expect_out "odd: 4 pairs"
    expect_out "empty: 0 pairs"
    [ "$(contents "$copy")" = "$whole" ] || failed "something else came back"
    new_copy
    # shellcheck disable=SC2086
    "$FARSIDE" dump $json - | "$FARSIDE" load --pool "$copy" - >/dev/null || failed "fails in a pipe"
    [ "$(contents "$copy")" = "$whole" ] || failed "something else came back through a pipe"
done
leaks=0

# On a terminal, progress is shown.
if script -qec true /dev/null >/dev/null 2>&1; then
    for command in "dump '$scratch/shown'" "load --check '$scratch/dump'"; do
        last="farside $command, on a terminal"
        out=$(script -qec "'$FARSIDE' $command" /dev/null </dev/null 2>&1)
        expect_out " pairs, "
        expect_out " MiB"
    done
fi

# JSON lines are for people.
run dump --json --table odd -
expect_code 0
expect_out '{"farside_dump":1}'
expect_out '{"table":"odd","index":"race","tuning":"groups=3&depth=0&hot=4096"}'
expect_out '{"key64":"AP8K","value":"a\\b"}'
expect_out '{"end":true,"tables":1,"pairs":4}'
new_copy
printf '%s\n' '{"table":"by hand"}' '{"key":"a","value":"1"}' '{"key":"a","value":"2"}' |
    "$FARSIDE" load --pool "$copy" - >"$scratch/out" || failed "does not load lines written by hand"
[ "$(<"$scratch/out")" = "by hand: 2 pairs" ] || failed "counts wrongly"
run get --pool "$copy" --table "by hand" a
[ "$out" = 2 ] || failed "the last pair of a key does not stay"

# A table that has keys is left alone, unless it is to be merged or has another name.
run dump "$scratch/dump"
new_copy
run put --pool "$copy" --table odd own value
run load --pool "$copy" --table odd "$scratch/dump"
expect_code 4
expect_no_out
expect_err "the table 'odd' has keys already: with --merge"
[ "$("$FARSIDE" keys --pool "$copy" --table odd)" = own ] || failed "changed the table"
run load --pool "$copy" --table odd --merge "$scratch/dump"
expect_code 0
[ "$("$FARSIDE" keys --pool "$copy" --table odd | wc -l)" = 5 ] || failed "did not merge"
run load --pool "$copy" --table odd=other --table empty "$scratch/dump"
expect_code 0
expect_out "other: 4 pairs"
run table list --pool "$copy"
[ "$(cut -f 1 <<<"$out" | tr '\n' ' ')" = "empty odd other " ] || failed "made other tables"
run load --pool "$copy" --table nosuch "$scratch/dump"
expect_code 3
expect_err "there is no table 'nosuch' in the dump"

# Another index; an empty table that exists keeps its own.
run load --pool "$copy" --table odd=ordered --index chime "$scratch/dump"
expect_code 0
run scan --pool "$copy" --table ordered --keys-only
expect_code 0
[ "$(tail -n 1 <<<"$out")" = 'tab\tkey' ] || failed "is not in order"
run load --pool "$copy" --table odd=small --tuning groups=2 "$scratch/dump"
expect_code 0
run table create --pool "$copy" --tuning groups=5 mine
run load --pool "$copy" --table odd=mine "$scratch/dump"
expect_code 0
run table list --pool "$copy" --count
expect_out $'mine\trace\t4\tgroups=5&depth=0&hot=4096'
expect_out $'small\trace\t4\tgroups=2&depth=0&hot=4096'
before=$out
run load --pool "$copy" --table odd=new --index btree "$scratch/dump"
expect_code 2
expect_err "cannot create the table 'new': no such index in this build"
run load --pool "$copy" --table odd=new --tuning grups=2 "$scratch/dump"
expect_code 2
run load --pool "$copy" --table odd=mine --merge --index chime "$scratch/dump"
expect_code 1
expect_err "the table has another index"
run table list --pool "$copy" --count
[ "$out" = "$before" ] || failed "changed something"

# A dump of many records, damaged in the middle and cut off.
run table drop bench-race
run bench --keep --index race --keys 20k --ops 1 --workload load --value-size 100
expect_code 0
run dump --table bench-race "$scratch/dump"
expect_code 0
bytes=$(stat -c %s "$scratch/dump")
cp "$scratch/dump" "$scratch/bad"
printf '\1\2\3' | dd of="$scratch/bad" bs=1 seek=$((bytes / 2)) conv=notrunc status=none
head -c $((bytes / 2)) "$scratch/dump" >"$scratch/cut"
for bad in bad cut; do
    new_copy
    run load --pool "$copy" "$scratch/$bad"
    expect_code 1
    expect_no_out
    [[ $err =~ "$scratch/$bad: record "([0-9]+)", at byte "([0-9]+)": " ]] || failed "does not name the place"
    record=${BASH_REMATCH[1]} at=${BASH_REMATCH[2]}
    [ "$record" -gt 1 ] || failed "does not begin"
    [ "$at" -le $((bytes / 2)) ] && [ "$at" -gt $((bytes / 2 - 400000)) ] || failed "names another place"
    [[ $err =~ "loaded before: bench-race: "([0-9]+)" pairs" ]] || failed "does not say what was loaded"
    loaded=${BASH_REMATCH[1]}
    [ "$("$FARSIDE" keys --pool "$copy" --table bench-race | wc -l)" = "$loaded" ] ||
        failed "has loaded something else"
    expect_err "With --from $record a load goes on there."
    run load --check "$scratch/$bad"
    expect_code 1
    expect_err "record $record, at byte $at: "
    # With the whole dump it goes on.
    run load --pool "$copy" --from "$record" "$scratch/dump"
    expect_code 0
    expect_out "bench-race: $((20000 - loaded)) pairs"
    [ "$("$FARSIDE" keys --pool "$copy" --table bench-race | wc -l)" = 20000 ] || failed "keys are missing"
done

# A line that is wrong.
run dump --json --table odd "$scratch/lines"
sed '4s/"key/"kee/' "$scratch/lines" >"$scratch/bad"
new_copy
run load --pool "$copy" "$scratch/bad"
expect_code 1
expect_err "line 4, at byte "
expect_err "loaded before: odd: 1 pair"
sed '$d' "$scratch/lines" >"$scratch/bad"
run load --pool "$copy" --merge "$scratch/bad"
expect_code 1
expect_err "the input ends without an end line: it is cut off"

# A pool that is too small; then a larger one.
new_copy
run stat --pool "shm:$scratch/tiny?size=1m"
run load --pool "shm:$scratch/tiny" "$scratch/dump"
expect_code 1
expect_err "the pool has no memory left"
expect_err "loaded before: bench-race: "
expect_err "With --from "
run pool check "shm:$scratch/tiny"
expect_code 0

# What is no dump changes nothing.
new_copy
echo "a text of mine" >"$scratch/text"
: >"$scratch/nothing"
for wrong in text nothing none; do
    run load --pool "$copy" "$scratch/$wrong"
    expect_code 1
    expect_no_out
    expect_err "$scratch/$wrong"
done
run load --pool "$copy" "$scratch"
expect_code 1
run table list --pool "$copy"
expect_no_out

# A dump that fails leaves nothing that looks like one, and keeps the old one.
cp "$scratch/dump" "$scratch/kept"
run dump --table nosuch "$scratch/kept"
expect_code 3
expect_err "cannot dump the table 'nosuch': no such table"
cmp -s "$scratch/dump" "$scratch/kept" || failed "changed the old dump"
last="farside dump, no room for the file" out=''
# The thread sanitizer has a file of its own in TMPDIR, if it can, which the limit would cut short.
err=$(ulimit -f 100 && TMPDIR=/nonexistent "$FARSIDE" dump "$scratch/kept" 2>&1)
code=$?
expect_code 1
expect_err "cannot write '$scratch/kept': File too large"
cmp -s "$scratch/dump" "$scratch/kept" || failed "changed the old dump"
[ ! -e "$scratch/kept.partial" ] || failed "left a part"
run dump "$scratch/none/dump"
expect_code 1
expect_err "cannot write '$scratch/none/dump': No such file or directory"
(
    flock 9
    run dump "$scratch/kept"
    expect_code 1
    expect_err "another dump is writing it"
) 9>"$scratch/kept.partial" || exit 1
# One that was killed does not keep others from writing.
run dump "$scratch/kept"
expect_code 0
[ ! -e "$scratch/kept.partial" ] || failed "left a part"
run load --check "$scratch/kept"
expect_code 0

# What somebody has put in the place of the part is not written to.
echo precious >"$scratch/other"
for planted in "ln -s $scratch/other" "ln $scratch/other" "mkfifo"; do
    $planted "$scratch/kept.partial" || failed "cannot plant a part"
    run dump "$scratch/kept"
    expect_code 0
    [ "$(cat "$scratch/other")" = precious ] || failed "wrote to a planted file"
    [ ! -e "$scratch/kept.partial" ] || failed "left a part"
    run load --check "$scratch/kept"
    expect_code 0
done

# A new dump is for its owner. An older one keeps its permissions, and a link to it stays.
run dump "$scratch/new"
expect_code 0
[ "$(stat -c %a "$scratch/new")" = 600 ] || failed "others can read the dump"
chmod 644 "$scratch/new"
ln -s new "$scratch/link"
run dump "$scratch/link"
expect_code 0
[ "$(stat -c %a "$scratch/new")" = 644 ] || failed "changed the permissions"
[ -L "$scratch/link" ] || failed "replaced the link"
run load --check "$scratch/link"
expect_code 0

# Wrong use.
for wrong in "" "a b" "--index race a"; do
    # shellcheck disable=SC2086 # options and arguments
    run dump $wrong
    expect_code 2
    expect_no_out
done
run dump ''
expect_code 2
for wrong in "" "a b" "--table = $scratch/dump" "--table a= $scratch/dump" "--from x $scratch/dump"; do
    # shellcheck disable=SC2086
    run load $wrong
    expect_code 2
    expect_no_out
done
FARSIDE_POOL= run load "$scratch/dump"
expect_code 2
expect_err "missing option --pool URI, and FARSIDE_POOL is not set"
FARSIDE_POOL= run load --check "$scratch/dump"
expect_code 0
run pool check
expect_code 0
