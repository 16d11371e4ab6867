#!/usr/bin/env bash
# Which names the libraries define for the programs that link them, and which ones our own objects
# define for each other. NM is the compiler's nm.
. "$(dirname "$0")/expect.bash"

# Every external name of the library's objects starts with one of these, and says where it belongs.
modules="clock err event_queue fds fiber hist mapping process rng text
         batch direct fab mem module shm superblock ucx uri verbs wire
         block catalog chain client freelist journal marks op pool size stock turn turns
         chime index race rcuckoo sephash shard tuning
         store far memd members paxos"

# The global names that a library defines. "A" are the version nodes of a shared library; a name
# with a dot is a sanitizer's.
names_in() { # NM-OPTIONS LIBRARY
    "$NM" --defined-only "$@" |
        awk 'NF == 3 && $2 != "A" { sub(/@.*/, "", $3); if ($3 !~ /\./) print $3 }' | sort -u
}

# Compares two files of names, one a line.
expect_same() { # WHAT EXPECTED GOT
    last=$1 code=0 err=""
    out=$(diff "$2" "$3") || failed "other names than expected"
}

grep '^FAR_API' "$SOURCE/include/farside.h" | sed -E 's/.*[ *](far_[a-z_]+)\(.*/\1/' | sort \
    >"$scratch/declared"
[ -s "$scratch/declared" ] || failed "no function found in farside.h"

names_in -D "$BUILD/libfarside.so" >"$scratch/shared"
expect_same libfarside.so "$scratch/declared" "$scratch/shared"
names_in -g "$BUILD/libfarside.a" >"$scratch/static"
expect_same libfarside.a "$scratch/declared" "$scratch/static"

# A module exports its entry and nothing else.
echo farside_module >"$scratch/entry"
for module in "$BUILD"/farside-*.so; do
    [ -e "$module" ] || continue # built without networks
    names_in -D "$module" >"$scratch/module"
    expect_same "${module##*/}" "$scratch/entry" "$scratch/module"
done

last="$NM of the library's objects" code=0
names_in -g $(library_objects) >"$scratch/internal"
[ "$(wc -l <"$scratch/internal")" -gt 100 ] || failed "hardly any names"
out=$(grep -Ev "^($(echo $modules | tr ' ' '|'))_" "$scratch/internal")
[ -z "$out" ] || failed "external names without the prefix of a module"
