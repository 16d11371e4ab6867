#!/usr/bin/env bash
# What documents name is there: the files and headings that they link to, paths, tests and targets of make.
. "$(dirname "$0")/expect.bash"

cd "$SOURCE" || exit 1
code=0
documents=$(git ls-files '*.md') || exit 1

# A heading as GitHub writes it into a link.
anchors() { # FILE
    sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

for document in $documents; do
    last=$document out=""
    while read -r link; do
        case $link in http*) continue ;; esac
        path=${link%%#*} anchor=""
        [[ $link == *'#'* ]] && anchor=${link#*#}
        to=$document
        [ -n "$path" ] && to=$(dirname "$document")/$path
        if [ ! -e "$to" ]; then
            out+="$link"$'\n'
        elif [ -n "$anchor" ] && ! anchors "$to" | grep -qxF "$anchor"; then
            out+="$link (no such heading)"$'\n'
        fi
    done < <(grep -oE '\]\([^) ]+\)' "$document" | sed 's/^](//; s/)$//')
    [ -z "$out" ] || failed "links to what is not there"
done

last="paths in documents"
out=$(grep -ohE '`(src|tests|docs|include|scripts|cmake|packaging)/[a-z0-9_./-]+`' $documents | tr -d '`' | sort -u |
    while read -r path; do [ -e "$path" ] || ls "$path".* >/dev/null 2>&1 || echo "$path"; done)
[ -z "$out" ] || failed "are not there"

last="ranges in tests/sim/seeds"
out=$(awk '!/^#/ && NF { n = split($3, ends, /\.\./); if (NF != 3 || n != 2 || ends[1] > ends[2] + 0) print }' tests/sim/seeds)
[ -z "$out" ] || failed "are empty, or no ranges"

last="tests in documents"
out=$(grep -ohE '`(unit|fabric|sim|torture|e2e|netns)/[a-z0-9_]+`' $documents | tr -d '`' | sort -u |
    while read -r test; do [ -e "tests/$test.c" ] || [ -e "tests/$test.sh" ] || [ -d "src/$test" ] || echo "$test"; done)
[ -z "$out" ] || failed "are not there"

last="targets of make in documents"
out=$(grep -ohE '(`|^    )make [a-z][a-z-]*' $documents | awk '{print $NF}' | sort -u |
    while read -r target; do grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" Makefile || echo "$target"; done)
[ -z "$out" ] || failed "are not in the Makefile"
