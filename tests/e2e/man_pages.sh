#!/usr/bin/env bash
# Every command has a manual page with the options of its help, and mandoc finds no mistakes in them.
. "$(dirname "$0")/expect.bash"

commands=$("$FARSIDE" --help | sed -n "s/^  \([a-z]*\)  .*/\1/p")
[ -n "$commands" ] || failed "lists no commands"
for command in $commands; do
    [ -s "$SOURCE/docs/man/farside-$command.1" ] || failed "there is no farside-$command.1"
    grep -q "^.It Cm $command\$" "$SOURCE/docs/man/farside.1" || failed "$command is not in farside.1"
done
[ -s "$SOURCE/docs/man/farside.3" ] || { echo "there is no farside.3" >&2; exit 1; }
python3 "$SOURCE/scripts/man-options" --check "$FARSIDE" || exit 1

if ! command -v mandoc >/dev/null; then
    echo "no mandoc here: the pages were not checked"
    exit 0
fi
mandoc -T lint -W warning "$SOURCE"/docs/man/farside*.[13]
