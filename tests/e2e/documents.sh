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

# Fragments of source in documents begin with "```c FILE", and are in that file as they are. A line "..." stands for
# what is left out. The guide for authors of an index has no other C.
last="fragments of source in documents"
out=$(python3 - $documents <<'PYTHON'
import pathlib
import sys

GUIDE = "docs/writing-an-index.md"


def lines_of(text):
    return [line.strip() for line in text.splitlines()]


def missing(fragment, source):
    """The first line of a piece of the fragment that is not in the source, behind the pieces before it."""
    at, piece = 0, []
    for line in [*fragment, "..."]:
        if line != "...":
            piece.append(line)
            continue
        while piece and at <= len(source) and source[at:at + len(piece)] != piece:
            at += 1
        if at > len(source):
            return piece[0]
        at, piece = at + len(piece), []
    return None


quoted = 0
for document in sys.argv[1:]:
    fragment = path = None
    for number, line in enumerate(pathlib.Path(document).read_text().splitlines(), 1):
        if fragment is None and line.startswith("```c"):
            fragment, path, begun = [], line[4:].strip(), number
        elif fragment is not None and line == "```":
            if not path and document != GUIDE:
                pass
            elif not pathlib.Path(path).is_file():
                print(f"{document}:{begun}: names no file")
            elif missing(lines_of("\n".join(fragment)), lines_of(pathlib.Path(path).read_text())):
                print(f"{document}:{begun}: differs from {path}")
            fragment, quoted = None, quoted + 1
        elif fragment is not None:
            fragment.append(line)
        elif document == GUIDE and line.startswith("    ") and line.rstrip().endswith((";", "{")):
            print(f"{document}:{number}: C that is quoted from no file")
    if fragment is not None:
        print(f"{document}:{begun}: has no end")
if quoted < 10:
    print("hardly any")
PYTHON
) || out+="the comparison failed"
[ -z "$out" ] || failed "are not in the sources"
