#!/usr/bin/env bash
# A flipped bit in a value that is in a block, in every index: everything else is dumped and listed, with a
# message and an exit status of its own. A repair corrects the bit. If nothing proves the value, it removes the
# entry, and says so.
. "$(dirname "$0")/expect.bash"

name=e2e-damaged-block-$$
uri=shm:$name
file=/dev/shm/farside-$name
trap 'rm -rf "$scratch" "$file"' EXIT

# Flips a bit of the only place that has these bytes.
flip() { # BYTES
    local at byte
    at=$(LC_ALL=C grep -aobF "$1" "$file" | cut -d: -f1)
    [[ $at =~ ^[0-9]+$ ]] || failed "'$1' is not in one place"
    byte=$(od -An -tu1 -j"$at" -N1 "$file")
    printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
}

for index in $(indexes); do
    rm -f "$file"
    run_leased stat --pool "$uri?size=32m"
    for i in 1 2 3 4 5; do
        run_leased put --pool "$uri" --table "$index" --index "$index" "the-key-$i" "a value of more than 8 bytes: $i"
        expect_code 0
    done
    flip "bytes: 3"

    run_leased get --pool "$uri" --table "$index" the-key-3
    expect_code 1
    expect_err "damaged"
    run_leased dump --pool "$uri" --json "$scratch/dump"
    expect_code 5
    expect_out "1 table, 4 pairs, "
    expect_err "up to 1 entries of the table '$index' are damaged, and were left out"
    for i in 1 2 4 5; do
        grep -q "the-key-$i" "$scratch/dump" || failed "the dump lacks key $i"
    done
    ! grep -q the-key-3 "$scratch/dump" || failed "dumped what is damaged"
    run_leased load --check "$scratch/dump"
    expect_code 0
    run_leased list --pool "$uri" --table "$index"
    expect_code 5
    expect_err "damaged"

    run_leased pool check "$uri"
    expect_code 1
    expect_out "1 damaged"
    run_leased pool check --repair "$uri"
    expect_code 0
    expect_out "of damaged entries 1 were salvaged and 0 lost"
    run_leased get --pool "$uri" --table "$index" the-key-3
    expect_code 0
    expect_out "a value of more than 8 bytes: 3"

    # Two bits: nothing proves the value.
    flip "bytes: 3"
    flip "ytes: 3"
    run_leased pool check --repair "$uri"
    expect_code 0
    expect_out "of damaged entries 0 were salvaged and 1 lost"
    run_leased get --pool "$uri" --table "$index" the-key-3
    expect_code 3
    run_leased dump --pool "$uri" --json "$scratch/dump"
    expect_code 0
    expect_no_err
    run_leased pool check "$uri"
    expect_code 0
done
