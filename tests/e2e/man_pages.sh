#!/usr/bin/env bash
# Every command has a manual page, and mandoc finds no mistakes in them.
. "$(dirname "$0")/expect.bash"

for page in farside farside-bench farside-check farside-get farside-put farside-del farside-list farside-scan farside-stat farside-memd farside-drop farside-pool; do
    [ -s "$SOURCE/docs/man/$page.1" ] || { echo "there is no $page.1" >&2; exit 1; }
done
[ -s "$SOURCE/docs/man/farside.3" ] || { echo "there is no farside.3" >&2; exit 1; }

if ! command -v mandoc >/dev/null; then
    echo "no mandoc here: the pages were not checked"
    exit 0
fi
mandoc -T lint -W warning "$SOURCE"/docs/man/farside*.[13]
