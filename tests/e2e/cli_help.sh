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
done

# The options of the help and those of the manual are the same.
for page in $commands; do
    manual=$SOURCE/docs/man/farside-$page.1
    run "$page" --help
    for option in $(grep -oE -- '--[a-z-]+' <<<"$out" | sort -u); do
        grep -q -- "Fl -${option#--}" "$manual" || failed "$option is not in $manual"
    done
    # Some commands share a page.
    out=$(for c in $commands; do
        [ "$SOURCE/docs/man/farside-$c.1" -ef "$manual" ] && "$FARSIDE" "$c" --help
    done)
    for option in $(sed -nE 's/^\.It .*Fl -([a-z-]+).*/--\1/p' "$manual"); do
        grep -q -- "$option\b" <<<"$out" || failed "has no $option, which is in $manual"
    done
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
