#!/usr/bin/env bash
# list and keys print every key of a table, scan those of a range in order, whatever bytes they have. They
# end cleanly at a signal, or when their reader has left.
. "$(dirname "$0")/expect.bash"

name=e2e-list-$$
uri=shm:$name
pid=
reader=
trap '[ -z "$pid$reader" ] || kill -9 $pid $reader 2>/dev/null; rm -rf "$scratch" "/dev/shm/farside-$name"' EXIT

expect_lines() { # what is printed, line by line, once it is sorted
    [ "$(LC_ALL=C sort <<<"$out")" = "$(printf '%s\n' "$@")" ] || failed "prints something wrong"
}
expect_exactly() { [ "$out" = "$(printf '%s\n' "$@")" ] || failed "prints something wrong"; }

run put --pool "$uri?size=64m&lease=60000" plain value
expect_code 0
run put --pool "$uri" --hex 00ff0a 'a\b'
expect_code 0
run put --pool "$uri" 'tab	key' "two
lines"
expect_code 0
run put --pool "$uri" grün ''
expect_code 0

leaks=1
run list --pool "$uri"
expect_code 0
expect_no_err
expect_lines $'\\x00\\xff\\n\ta\\\\b' $'gr\303\274n\t' $'plain\tvalue' $'tab\\tkey\ttwo\\nlines'
leaks=0
run list --pool "$uri" --keys-only
expect_code 0
expect_lines '\x00\xff\n' $'gr\303\274n' plain 'tab\tkey'
run keys --pool "$uri"
expect_code 0
expect_lines '\x00\xff\n' $'gr\303\274n' plain 'tab\tkey'
run keys --pool "$uri" --hex --prefix 00ff
expect_lines 00ff0a
run list --pool "$uri" --prefix pla
expect_lines $'plain\tvalue'
run keys --pool "$uri" --prefix plainer
expect_code 0
expect_no_out
run keys --pool "$uri" --prefix plain --limit 1
expect_lines plain
for null in -0 --null; do
    "$FARSIDE" keys --pool "$uri" "$null" --prefix tab | cmp - <(printf 'tab\tkey\0') ||
        failed "$null changes the bytes"
    "$FARSIDE" list --pool "$uri" "$null" --prefix tab | cmp - <(printf 'tab\tkey\0two\nlines\0') ||
        failed "$null changes the bytes"
done
run list --pool "$uri" --hex
expect_lines $'00ff0a\t615c62' $'6772c3bc6e\t' $'706c61696e\t76616c7565' \
    $'746162096b6579\t74776f0a6c696e6573'
run list --pool "$uri" --limit 3
expect_code 0
[ "$(wc -l <<<"$out")" = 3 ] || failed "prints a wrong number of lines"
run list --pool "$uri" --table other
expect_code 3
expect_no_out
expect_err "cannot open the table 'other': no such table"

# A table without an order cannot be scanned; the message names the indexes that keep one.
run scan --pool "$uri"
expect_code 1
expect_no_out
expect_err "cannot scan the table 'default': not supported here (table 'default' has index race, which does not keep keys in order; indexes of this build that do: chime)"

# An entry that is longer than the initial buffer.
head -c 2000000 /dev/zero >"$scratch/big"
run put --pool "$uri" --table big key <"$scratch/big"
run list --pool "$uri" --table big --hex
expect_code 0
[ "${#out}" = $((6 + 1 + 4000000)) ] || failed "prints a wrong number of characters"
run list --pool "$uri" --table big --keys-only
expect_exactly key

# More than one buffer of entries; a reader that leaves; a signal.
run bench --pool "$uri" --workload load --keys 20k --index race --keep
expect_code 0
run list --pool "$uri" --table bench-race --hex
expect_code 0
[ "$(sort -u <<<"$out" | wc -l)" = 20000 ] || failed "prints a wrong number of keys"
"$FARSIDE" list --pool "$uri" --table bench-race --hex 2>/dev/null | head -n 1 >"$scratch/line"
[ -s "$scratch/line" ] || failed "prints nothing"
mkfifo "$scratch/pipe"
set -m # a script's background jobs ignore SIGINT unless it has job control
{ # reads once the file exists
    until [ -e "$scratch/read" ]; do sleep 0.05; done
    cat
} <"$scratch/pipe" >"$scratch/part" &
reader=$!
"$FARSIDE" list --pool "$uri" --table bench-race --hex >"$scratch/pipe" 2>"$scratch/err" &
pid=$!
for _ in $(seq 1200); do
    run stat "$uri" --json
    [[ $out == *'"clients": 1,'* ]] || break
    sleep 0.05
done
kill -INT "$pid" || failed "ended by itself"
touch "$scratch/read"
wait "$pid"
[ $? = 130 ] || failed "SIGINT: the exit status is wrong"
pid=
wait "$reader"
reader=
[ "$(wc -l <"$scratch/part")" -lt 20000 ] || failed "went on to the end"
grep -q "farside list: interrupted after" "$scratch/err" || failed "does not say so"
run stat "$uri" --json
[[ $out == *'"clients": 1,'* ]] || failed "left a session behind"
run pool check "$uri"
[ "$out" = "$uri: clean" ] || failed "left something behind"

# Ranges, by a program that has an ordered index.
FARSIDE=$ORDERED
in=(--pool "$uri" --table ordered)
for key in b a ab c ba; do
    run put "${in[@]}" --index ordered "$key" "v$key"
    expect_code 0
done
leaks=1
run scan "${in[@]}"
expect_code 0
expect_no_err
expect_exactly $'a\tva' $'ab\tvab' $'b\tvb' $'ba\tvba' $'c\tvc'
leaks=0
run scan "${in[@]}" --keys-only --from ab --to c
expect_exactly ab b ba
run scan "${in[@]}" --keys-only --from aa --limit 2
expect_exactly ab b
run scan "${in[@]}" --keys-only --prefix a
expect_exactly a ab
run scan "${in[@]}" --keys-only --prefix b --limit 1
expect_exactly b
for key in ff ff00 ffff feff; do run put "${in[@]}" --hex "$key" v; done
run scan "${in[@]}" --keys-only --hex --prefix ff
expect_exactly ff ff00 ffff
run scan "${in[@]}" --keys-only --hex --prefix feff
expect_exactly feff
for key in ff ff00 ffff feff; do run del "${in[@]}" --hex "$key"; done
run scan "${in[@]}" --hex --from 6162 --to 6261
expect_exactly $'6162\t766162' $'62\t7662'
run scan "${in[@]}" --from c --to a
expect_code 0
expect_no_out
run list "${in[@]}" --keys-only
expect_lines a ab b ba c
# Entries before and after one that is longer than the buffer.
head -c 1500000 /dev/zero >"$scratch/big"
run put "${in[@]}" bb <"$scratch/big"
run put "${in[@]}" bc last
run scan "${in[@]}"
expect_code 0
[ "$(cut -f 1 <<<"$out" | tr '\n' ' ')" = "a ab b ba bb bc c " ] || failed "prints other keys"
exit 0
