#!/usr/bin/env bash
# The rooms of the source tree; docs/architecture.md has the map. Includes and calls point downward only,
# private headers stay in their folder, no files include or call each other in a ring, the pool's files
# call in the order of pool_internal.h, and a client's states are written by their own files.
. "$(dirname "$0")/expect.bash"

cd "$SOURCE/src" || exit 1
code=0

# Each folder, the folders whose headers it may include, and behind "|" those it may call besides. POOLS are the folders
# in pool: outside it, nobody includes their headers.
sed 's,POOLS,pool/memory pool/clients pool/sweep,' >"$scratch/rooms" <<'ROOMS'
base base
fabric base fabric
fabric/ucx base fabric fabric/ucx
fabric/verbs base fabric fabric/verbs
members base fabric members
chain base fabric chain
pool base fabric members pool POOLS
pool/memory base fabric pool pool/memory
pool/clients base fabric members pool pool/memory pool/clients
pool/sweep base fabric pool POOLS
index base fabric pool index | POOLS
index/race base fabric pool index index/race | POOLS
index/chime base fabric pool index index/chime | POOLS
index/shard base fabric pool index index/shard | POOLS
index/rcuckoo base fabric pool index index/rcuckoo | POOLS
index/sephash base fabric pool index index/sephash | POOLS
store base fabric chain pool index store | POOLS
memd base fabric fabric/ucx fabric/verbs memd
module base fabric memd module
sim base fabric sim
check base fabric members chain pool index store sim check | POOLS
model base fabric model
out base out
bench base fabric store model out bench | pool POOLS index
compare base fabric out bench compare | store
compare/modules compare
reproduce base out bench reproduce | store
report out report
cli base index out bench compare report reproduce check sim memd cli | fabric store
ROOMS

# Of pairs of files "FROM TO", prints those that the table does not allow.
not_allowed() { # includes|calls FILE
    awk -v calls="$([ "$1" = calls ] && echo 1)" '
        function folder(path) { sub("/[^/]*$", "", path); return path }
        FNR == NR {
            for (i = 2; i <= NF && ($i != "|" || calls); i++) may[$1 " " $i] = 1
            next
        }
        !((folder($1) " " folder($2)) in may)' "$scratch/rooms" "$2"
}

# Takes files away that need no other, until none can be taken. What is left is a ring.
rings() { # FILE
    awk '$1 != $2 { needs[$1 " " $2] = 1 }
         END {
             do {
                 taken = 0
                 split("", busy)
                 for (n in needs) { split(n, p, " "); busy[p[1]] = 1 }
                 for (n in needs) {
                     split(n, p, " ")
                     if (!(p[2] in busy)) { delete needs[n]; taken = 1 }
                 }
             } while (taken)
             for (n in needs) print n
         }' "$1" | sort
}

expect_none() { # WHAT-IS-WRONG
    [ -z "$out" ] || failed "$1"
}

# ---- includes ----
last=includes
grep -rE '^ *# *include "' --include='*.[ch]' . | grep -v '"farside\.h"' |
    sed -E 's,^\./([^:]*): *# *include "([^"]+)".*,\1 \2,' >"$scratch/includes"
[ "$(wc -l <"$scratch/includes")" -gt 200 ] || failed "hardly any includes"
# index.c lists the indexes.
out=$(not_allowed includes "$scratch/includes" | grep -v '^index/index\.c index/[a-z]*/')
expect_none "includes that point upward"
out=$(rings "$scratch/includes")
expect_none "headers that include each other in a ring"
# An index author meets op.h. The harness of `farside check` looks into clients, because it audits their memory, and into
# sessions, because it repairs single tables.
out=$(awk '$1 ~ /^index\// && $2 ~ /^pool\/(pool|client|pool_internal)\.h$/
           $2 ~ /_internal\.h$/ {
               split($1, from, "/"); split($2, to, "/")
               if (from[1] != to[1] && !(from[1] == "check" && to[1] ~ /^(pool|store)$/)) print
           }' "$scratch/includes")
expect_none "headers that are not for this reader"
# The example is an index like those.
out=$(grep -rnE '^ *# *include "' --include='*.[ch]' ../examples |
    grep -vE '"(trie|index)/[a-z_]+\.h"|"pool/(op|pointer|array|catalog)\.h"')
expect_none "headers that are not for an index"

# ---- calls: the functions that objects define and need ----
# incoming.c has some of the C library's names, for UCX. Others who call these mean the C library.
last=calls
{ library_objects; objects_of farside_{bench,tools,cli}; } >"$scratch/objects"
[ "$(wc -l <"$scratch/objects")" -gt 100 ] || failed "hardly any objects in $BUILD"
xargs "$NM" -A <"$scratch/objects" | sed -E 's,^.*\.dir/src/([^:]*)\.o:,\1 ,' |
    awk '$(NF - 1) == "T" && $NF !~ /^(accept|connect|recv|send)$/ { at[$NF] = $1 }
         $(NF - 1) == "U" { needs[$1 " " $NF] = 1 }
         END { for (n in needs) { split(n, p, " "); if (p[2] in at) print p[1], at[p[2]] } }' |
    sort -u >"$scratch/calls"
[ "$(wc -l <"$scratch/calls")" -gt 300 ] || failed "hardly any calls"
out=$(not_allowed calls "$scratch/calls")
expect_none "calls that point upward"
out=$(rings "$scratch/calls")
expect_none "files that call each other in a ring"
# op.c is below the pool's folders, its other files are above memory and clients.
out=$(awk '$1 ~ /^pool\/(memory|clients)\// && $2 ~ /^pool\/[a-z]+\.c$/ && $2 != "pool/op.c"' "$scratch/calls")
expect_none "calls of the pool's folders that point upward"
for header in pool/pool_internal.h pool/clients/journal_internal.h; do
    out=$(sed -nE 's,^/\* ---- ([a-z_/]+\.c)\b.*,pool/\1,p' $header |
        awk 'FNR == NR { order[$1] = ++n; next }
             ($1 in order) && ($2 in order) && order[$1] < order[$2]' - "$scratch/calls")
    expect_none "calls against the order of $header"
done

# ---- states of a client (pool/client.h), and who writes them besides client.c, which sets them up ----
last=states out=""
while read -r state files; do
    files=$(find . -path ./check -prune -o -name '*.c' ! -path ./pool/client.c \
                $(printf ' ! -path ./pool/%s' $files) -print)
    write="(->|\\.)$state\\.[a-z_.]+(\\[[^]]*\\])*(\\.[a-z_]+)*"
    out+=$(grep -nE "(\+\+|--)[a-z>.-]*$write|$write *([-+|&^]?=[^=]|\+\+|--)" $files)
done <<'STATES'
epoch clients/epoch.c clients/registry.c
stock memory/stock.c memory/alloc.c
sweep clients/sweep_part.c sweep/sweep.c clients/epoch.c
watch clients/watch.c clients/lease.c
lines clients/journal.c clients/journal_recover.c
STATES
expect_none "states that another file writes"
