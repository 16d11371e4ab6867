#!/usr/bin/env bash
# Pools with voters on real memory nodes: who is a member, while voters are killed with -9, end in order, come back with
# their memory, with a copy of it, or without it; and a witness, which keeps no data.
. "$(dirname "$0")/expect.bash"
run pool members 'mem:?nodes=3&voters=3&size=4m' --out 1
expect_code 0
expect_out "2 voters, 2 answer, 2 needed; view 2"
run pool members 'mem:?nodes=3&voters=3&size=4m' --in 1
expect_code 0
expect_err "node 1 votes already"
run pool members 'mem:?nodes=3&size=4m'
expect_code 0
expect_out "3 nodes, no voters"
run pool members 'mem:?nodes=3&size=4m' --in 1
expect_code 1
expect_err "has no voters"
run pool members 'mem:?nodes=3&voters=3&size=4m' --in 1 --out 2
expect_code 2
run pool members 'mem:?nodes=3&voters=3&size=4m' --out 3
expect_code 2
expect_err "nodes 0 to 2"
run stat --pool 'mem:?nodes=3&voters=2&size=4m'
expect_code 2
expect_err "give 1, 3 or 5"
run stat --pool "shm:$scratch/shm?size=4m&nodes=3&voters=3"
expect_code 0
expect_out "3  (3 answer, 2 needed; view 1)"
run stat --pool "shm:$scratch/shm?voters=1"
expect_code 2
expect_err "voters=3"
run memd --listen ucx://127.0.0.1:0 --witness --size 4m
expect_code 2
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: the rest was not tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"

# Data on a and b, and c is a witness.
declare -A at=([a]= [b]= [c]=) pid
start() { # NAME OPTION...: at the address that it had
    PORT=${at[$1]:+${at[$1]##*:}} memd --file "$scratch/$1" "${@:2}"
    at[$1]=$address pid[$1]=$node
}
start a --size 16m
start b --size 16m
start c --witness
bare="ucx://${at[a]},${at[b]},${at[c]}"
pool="$bare?timeout=2000&lease=2000"
members() { # TEXT-OF-THE-FIRST-LINE OPTION...
    run pool members "$pool" "${@:2}"
    expect_out "$1"
}
run put --pool "$bare?timeout=2000&lease=2000" key value # no witness without voters
expect_code 2
expect_err "give voters=3"
run pool members "$pool&voters=3"
expect_code 0
expect_out "3 nodes, 3 voters, 3 answer, 2 needed; view 1"
grep -q "2 .*witness .*yes .*answers" <<<"$out" || failed "does not show the witness"
for index in race shard sephash rcuckoo chime; do
    run put --pool "$pool" --table $index --index $index key value
    expect_code 0
done

# A voter is killed: the others go on, and a dead witness stops nothing else either.
end_memd KILL "${pid[c]}"
members "3 voters, 2 answer, 2 needed; view 1"
expect_code 0
for index in race shard sephash rcuckoo chime; do
    run put --pool "$pool" --table "more-$index" --index $index key value
    expect_code 0
    run get --pool "$pool" --table $index key
    [ "$out" = value ] || failed "is not what was put"
done
run pool check "$pool" --repair
expect_code 0
start c --witness
members "has to be taken in again"
expect_out "3 voters, 2 answer, 2 needed; view 1"
members "3 voters, 3 answer, 2 needed; view 2" --in 2

# An orderly end is no loss. A copy of the memory, which may be old, does not count.
cp "$scratch/c" "$scratch/old"
end_memd TERM "${pid[c]}"
expect_code 0
start c --witness
members "3 voters, 3 answer, 2 needed; view 2"
end_memd TERM "${pid[c]}"
mv "$scratch/old" "$scratch/c"
start c --witness
members "3 voters, 2 answer, 2 needed; view 2"
members "3 voters, 3 answer, 2 needed; view 3" --in 2

# It comes back empty: it is put out, and the pool goes on. Then no other can go.
end_memd KILL "${pid[c]}"
rm "$scratch/c"
start c --witness
members "3 voters, 2 answer, 2 needed; view 3"
members "2 voters, 2 answer, 2 needed; view 4" --out 2
run pool members "$pool" --out 1
expect_code 2
expect_err "only 2 voters are left, and 2 are needed"

# Most voters were killed: nobody can open a session, until an operator accepts them as they are.
end_memd KILL "${pid[b]}"
run get --pool "$pool" --table race key
expect_code 1
expect_err "only 1 of 2 voters"
start b
run pool members "$pool"
expect_code 1
expect_err "node 1 was killed"
run pool members "$pool" --accept
expect_code 0
expect_out "2 voters, 2 answer, 2 needed; view 5"
for index in race shard sephash rcuckoo chime; do
    run get --pool "$pool" --table $index key
    [ "$out" = value ] || failed "is not what was put"
done
run pool members "$pool" --json
expect_code 0
expect_out '"changes_left": 4091'
expect_out '"role": "witness"'
run stat --pool "$pool" --json
expect_out '"view": 5'

# Ten clients at once take the killed node in: one truth, and none of them fails.
end_memd KILL "${pid[b]}"
start b
run pool members "$pool" --accept
expect_out "view 6"
for i in $(seq 10); do
    "$FARSIDE" put --pool "$pool" --table race "key$i" "value$i" 2>"$scratch/put$i.err" &
    writers[i]=$!
done
for i in $(seq 10); do
    wait "${writers[i]}" || { last="put $i" code=$? out= err=$(<"$scratch/put$i.err"); failed "did not succeed"; }
done
run pool check "$pool"
expect_code 0
for name in a b c; do
    end_memd TERM "${pid[$name]}"
    expect_code 0
done

# A voter with data comes back empty: the pool opens without it, the others put it out, and it is not taken in.
for name in d e f; do
    start $name --size 16m
done
pool="ucx://${at[d]},${at[e]},${at[f]}?timeout=2000&lease=2000"
run pool members "$pool&voters=3"
expect_code 0
end_memd KILL "${pid[e]}"
rm "$scratch/e"
start e --size 16m
members "3 voters, 2 answer, 2 needed; view 1"
expect_code 0
grep -q "1 .*node 1 holds no Farside pool" <<<"$out" || failed "does not say what node 1 is"
run pool members "$pool" --in 1
expect_code 1
expect_err "node 1 holds no Farside pool"
members "2 voters, 2 answer, 2 needed; view 2" --out 1
expect_code 0
for name in d e f; do
    end_memd TERM "${pid[$name]}"
    expect_code 0
done

# What cannot be made leaves nothing behind.
start g --size 16m
start h --size 16m
start i --witness
run stat --pool "ucx://${at[g]},${at[h]},${at[i]}?voters=3&clients=5000"
expect_code 2
expect_err "too small for so many clients"
run put --pool "ucx://${at[g]},${at[h]}?clients=5000" key value
expect_code 0
run pool check "ucx://${at[g]},${at[h]}"
expect_code 0
