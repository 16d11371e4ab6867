#!/usr/bin/env bash
# The rooms of the source tree: which folder may include which, and that no files of a folder call
# each other in a ring. docs/architecture.md has the map.
. "$(dirname "$0")/expect.bash"

cd "$SOURCE/src" || exit 1

# Each folder, and the folders that its files may include: itself, and what is below it.
rooms="base: base
fabric: base fabric
pool: base fabric pool
index: base fabric pool index
store: base fabric pool index store
memd: base fabric pool memd
sim: base fabric pool index store sim
bench: base fabric pool index store bench
cli: base fabric pool index store memd sim bench cli"

# What a file includes of ours, as "FILE HEADER".
grep -roE '^#include "[^"]+"' --include='*.[ch]' . | sed -E 's,^\./,,; s,:#include "([^"]+)", \1,' \
    >"$scratch/includes"
last="includes" code=0
[ "$(wc -l <"$scratch/includes")" -gt 200 ] || failed "hardly any includes"
out=$(echo "$rooms" | awk '
    FNR == NR { sub(":", "", $1); for (i = 2; i <= NF; i++) may[$1 " " $i] = 1; next }
    { split($1, from, "/"); split($2, to, "/")
      if ($2 ~ /\// && !((from[1] " " to[1]) in may)) print $1 " includes " $2 }' - "$scratch/includes")
[ -z "$out" ] || failed "includes that point upward"

# An index author meets op.h. What is private to a folder stays there; but the simulator looks into
# clients, which is its business.
out=$(awk '$1 ~ /^index\/[a-z]+\// && $2 ~ /^pool\/(pool|client|pool_internal)\.h$/
           $2 ~ /_internal\.h$/ {
               split($1, from, "/"); split($2, to, "/")
               if (from[1] != to[1] && !(from[1] == "sim" && to[1] == "pool")) print
           }' "$scratch/includes")
[ -z "$out" ] || failed "headers that are not for this reader"

# Which file calls which, by the functions that the objects define and need: "FOLDER FILE FILE".
objects=$(find "$BUILD"/CMakeFiles/farside_{objects,tools,cli}.dir/src -name '*.c.o' |
    while read -r object; do
        source=${object##*.dir/src/}
        [ -e "${source%.o}" ] && echo "$object" # else it is left over from an earlier build
    done)
last="calls"
[ "$(wc -w <<<"$objects")" -gt 100 ] || failed "hardly any objects in $BUILD"
"$NM" -A $objects | sed -E 's,^.*\.dir/src/([^:]*)\.o:,\1 ,' |
    awk '$(NF - 1) == "T" { at[$NF] = $1 }
         $(NF - 1) == "U" { needs[$1 " " $NF] = 1 }
         END { for (n in needs) { split(n, p, " "); if (p[2] in at) print p[1], at[p[2]] } }' |
    sort -u >"$scratch/calls"
[ "$(wc -l <"$scratch/calls")" -gt 300 ] || failed "hardly any calls"

out=$(echo "$rooms" | awk '
    FNR == NR { sub(":", "", $1); for (i = 2; i <= NF; i++) may[$1 " " $i] = 1; next }
    { split($1, from, "/"); split($2, to, "/")
      if (!((from[1] " " to[1]) in may)) print $1 " calls " $2 }' - "$scratch/calls")
[ -z "$out" ] || failed "calls that point upward"

# Takes files away that call no other of their folder, until none can be taken: what is left is a ring.
out=$(awk '
    function folder(path) { sub("/[^/]*$", "", path); return path }
    $1 != $2 && folder($1) == folder($2) { calls[$1 " " $2] = 1 }
    END {
        do {
            taken = 0
            split("", busy)
            for (c in calls) { split(c, p, " "); busy[p[1]] = 1 }
            for (c in calls) { split(c, p, " "); if (!(p[2] in busy)) { delete calls[c]; taken = 1 } }
        } while (taken)
        for (c in calls) { split(c, p, " "); print p[1] " calls " p[2] }
    }' "$scratch/calls" | sort)
[ -z "$out" ] || failed "files that call each other in a ring"

# The states of a client (pool/client.h), and who writes them besides client.c, which sets them up.
last="states" out=""
while read -r state files; do
    out+=$(grep -nE -- "->$state\\.[a-z_.]+(\\[[^]]*\\])?(\\.[a-z_]+)* *([-+|]?=[^=]|\\+\\+|--)" \
               $(find . -name '*.c' ! -path ./pool/client.c $(printf ' ! -path ./pool/%s' $files)))
done <<'STATES'
epoch epoch.c registry.c
stock stock.c alloc.c
sweep sweep_part.c sweep.c epoch.c
watch watch.c lease.c
STATES
[ -z "$out" ] || failed "states that another file writes"
