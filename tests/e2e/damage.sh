#!/usr/bin/env bash
# A flipped bit in a value that is inline: everything else is dumped and listed, with a message and an
# exit status of its own. A repair salvages the entries that prove themselves, and says how many.
. "$(dirname "$0")/expect.bash"

name=e2e-damage-$$
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

for index in rcuckoo chime; do
    rm -f "$file"
    for i in 1 2 3 4 5 6; do # a group of chime has four, a row of rcuckoo eight, and there are many of both
        run_leased put --pool "$uri?size=16m" --table "$index" --index "$index" "key-000$i" "val-$index-$i"
        expect_code 0
        run_leased put --pool "$uri" --table "$index" "row-000$i" "inline-$i"
        expect_code 0
    done
    run_leased put --pool "$uri" --table other key value
    flip inline-3

    run_leased get --pool "$uri" --table "$index" row-0003
    expect_code 1
    expect_err "damaged"
    run_leased dump --pool "$uri" "$scratch/dump"
    expect_code 5
    expect_err "entries of the table '$index' are damaged, and were left out"
    [ -s "$scratch/dump" ] || failed "wrote no file"
    run_leased load --check "$scratch/dump"
    expect_code 0
    run_leased dump --pool "$uri" --table other "$scratch/dump"
    expect_code 0
    expect_no_err
    for command in list keys; do
        run_leased $command --pool "$uri" --table "$index"
        expect_code 5
        expect_err "damaged"
        expect_out "row-000"
        [[ $out != *row-0003* ]] || failed "printed what is damaged"
    done
    run_leased stat "$uri" --table "$index"
    expect_code 0
    expect_out "damaged"

    run_leased pool check "$uri"
    expect_code 1
    expect_out "1 damaged"
    run_leased pool check --repair "$uri"
    expect_code 0
    expect_out "salvaged, 0 lost"
    expect_out "were salvaged and 0 lost"
    run_leased list --pool "$uri" --table "$index"
    expect_code 0
    expect_no_err
    expect_out "inline-3"

    # Two bits: nothing proves the value.
    flip inline-3
    flip nline-3
    run_leased pool check --repair --json "$uri"
    expect_code 0
    [[ $out == *'"lost_entries": '[1-9]* ]] || failed "lost nothing"
    run_leased get --pool "$uri" --table "$index" row-0003
    expect_code 3
    run_leased put --pool "$uri" --table "$index" row-0003 inline-3
    expect_code 0
    run_leased pool check "$uri"
    expect_code 0
done
