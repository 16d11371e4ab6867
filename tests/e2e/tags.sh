#!/usr/bin/env bash
# Tags of guarantees (EPOCH-E3): the table in docs/architecture.md has every one, each is defined in the
# file that the table names and nowhere else, and nothing cites a tag that is not defined. Claims of papers
# have other names (SHARD-CLAIM-1).
. "$(dirname "$0")/expect.bash"

cd "$SOURCE" || exit 1
code=0

# "RACE-R1 to R8 | ... | `folder/file`; R2 is in `other`": a line "TAG file other" for each.
awk -F' *[|] *' '
    /^## Numbered guarantees/ { inside = 1 }
    /^## Glossary/ { inside = 0 }
    inside && $2 ~ /^[A-Z]+-[A-Z]?[0-9]/ {
        split($2, range, / to |, /)
        family = range[1]; sub(/[0-9]+$/, "", family)
        first = range[1]; sub(/.*[-A-Z]/, "", first)
        last = (2 in range) ? range[2] : first; sub(/^[A-Z]+/, "", last)
        files = ""
        for (n = split($4, part, "`"); n > 0; n--)
            if (n % 2 == 0) { sub(/.*\//, "", part[n]); files = files " " part[n] }
        for (n = first + 0; n <= last + 0; n++) print family n files
    }' docs/architecture.md | sort >"$scratch/table"
last="the table of docs/architecture.md"
[ "$(wc -l <"$scratch/table")" -gt 100 ] || failed "has hardly any tags"
out=$(cut -d' ' -f1 "$scratch/table" | uniq -d)
[ -z "$out" ] || failed "has tags twice"

# Definitions: the first words of a comment or of a paragraph of it, behind them two spaces.
last="definitions"
grep -rnoE '^ *(/\*| \*) +[A-Z]+-[A-Z]?[0-9]+  ' --include='*.[ch]' src examples |
    sed -E 's,^([^:]+/)?([^:/]+):[0-9]+: *(/\*|\*) +([A-Z0-9-]+).*,\4 \2,' | sort >"$scratch/defined"
out=$(cut -d' ' -f1 "$scratch/defined" | uniq -d)
[ -z "$out" ] || failed "these stand in two places"
out=$(cut -d' ' -f1 "$scratch/defined" | comm -3 - <(cut -d' ' -f1 "$scratch/table"))
[ -z "$out" ] || failed "the table lacks these (left), or they are not defined (right)"
out=$(join "$scratch/defined" "$scratch/table" |
    awk '{ for (n = 3; n <= NF && $n != $2; n++); if (n > NF) print }')
[ -z "$out" ] || failed "the table names another file than the one that defines these"

# Citations.
last="citations"
families=$(sed -E 's/[0-9]+ .*//' "$scratch/table" | sort -u | paste -sd'|')
git ls-files -- src examples tests docs include README.md CONTRIBUTING.md |
    xargs grep -onIE "\b($families)[0-9]+\b" 2>/dev/null | sed -E 's/^([^:]+:[0-9]+):/\1 /' |
    awk 'FNR == NR { defined[$1] = 1; next } !($2 in defined)' "$scratch/table" - >"$scratch/undefined"
out=$(cat "$scratch/undefined")
[ -z "$out" ] || failed "cite tags that nothing defines"
