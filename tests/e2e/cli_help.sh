#!/usr/bin/env bash
# Help and version go to the standard output and succeed; without arguments, the usage goes to
# stderr.
. "$(dirname "$0")/expect.bash"

run --version
expect_code 0
[[ $out =~ ^farside\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || failed "is no version"

for help in --help -h help; do
    run "$help"
    expect_code 0
    expect_out "usage: farside COMMAND"
    expect_no_err
done

run
expect_code 2
expect_no_out
expect_err "usage: farside COMMAND"

commands=$("$FARSIDE" --help | sed -n "s/^  \([a-z]*\)  .*/\1/p")
[ -n "$commands" ] || failed "lists no commands"
for command in $commands; do
    for help in --help -h; do
        run "$command" "$help"
        expect_code 0
        expect_out "usage: farside $command"
        expect_no_err
    done
    help=$out
    run help "$command"
    expect_code 0
    [ "$out" = "$help" ] || failed "differs from farside $command --help"
    [ -z "$(grep -E '.{101}' <<<"$out" | grep -v '^  \(race\|shard\|sephash\|rcuckoo\|chime\) ')" ] ||
        failed "has lines of more than 100 columns"
done

# The help of a command with subcommands is that of all of them.
run table --help
for sub in list create drop; do
    expect_out "$("$FARSIDE" table "$sub" --help)"
done

# Output that cannot be written is a failure.
if [ -e /dev/full ]; then
    last="farside --help >/dev/full"
    out=
    "$FARSIDE" --help >/dev/full 2>"$scratch/err"
    code=$?
    err=$(<"$scratch/err")
    expect_code 1
    expect_err "cannot write"
fi
