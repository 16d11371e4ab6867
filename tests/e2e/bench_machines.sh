#!/usr/bin/env bash
# Machines that measure together, as processes of this one: the results are those of all of them, and
# one shows them. Whatever is wrong with one of them is said by name, and the others end.
. "$(dirname "$0")/expect.bash"

pool="shm:$scratch/pool?size=256m"
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID SLURM_NTASKS

# ---- wrong use ----
refused() { # MESSAGE OPTION...
    run bench "${@:2}"
    expect_code 2
    expect_err "$1"
}
refused "mem: is one of this process" --machines 2 --rank 0
refused "model: is one of this process" --pool "model:?nic=cx6" --machines 2 --rank 0
refused "of 2 machines, the ranks are from 0 to 1: there is no 2" --pool "$pool" --machines 2 --rank 2
refused "each machine needs its own --rank from 0 to 3" --pool "$pool" --machines 4
refused "say how many with --machines" --pool "$pool" --rank 1
refused "mpirun, mpiexec or srun must start this" --pool "$pool" --machines auto
refused "invalid --machines 'many'" --pool "$pool" --machines many
refused "leave --processes out" --pool "$pool" --machines 2 --rank 0 --processes 2
refused "--raw compares with the verbs of one machine" --pool "$pool" --machines 2 --rank 0 --raw
refused "at most 1024" --pool "$pool" --machines 2 --rank 0 --threads 600
SLURM_PROCID=7 refused "there is no 7, as in SLURM_PROCID" --pool "$pool" --machines 2
# Without --machines, what a launcher says does not matter.
SLURM_PROCID=3 SLURM_NTASKS=4 run bench --keys 1k --ops 1k --index race --workload c
expect_code 0

# ---- together ----
# start RANK OPTION...: in the background
declare -A pid
start() {
    "$FARSIDE" bench --pool "$pool" --index race "${@:2}" >"$scratch/$1.out" 2>"$scratch/$1.err" &
    pid[$1]=$!
}
finish() { # RANK
    wait "${pid[$1]}"
    code=$? last="machine $1" out=$(<"$scratch/$1.out") err=$(<"$scratch/$1.err")
}
one_result() { # POOL: of three machines with two threads
    for rank in 2 1; do
        PMI_RANK=$rank PMI_SIZE=3 start $rank --machines auto "${options[@]}"
    done
    start 0 --machines 3 --rank 0 --json "$scratch/json" --csv "$scratch/csv" "${options[@]}"
    for rank in 1 2; do
        finish $rank
        expect_code 0
        expect_no_out
        expect_err "machine $rank of 3: machine 0 ("
    done
    finish 0
    expect_code 0
    expect_out "3 machines, each with 2 threads with 2 operations in flight"
    for workload in load a d insert delete; do
        grep -qE "^race +$workload +[0-9,]+ " <<<"$out" || failed "has no row for $workload"
    done
    expect_out "space: 3,100 keys"
    [ "$(grep -c '"machines": 3' "$scratch/json")" -eq 5 ] || failed "does not say so in the JSON"
    [ "$(grep -c '"ops": 2001' "$scratch/json")" -eq 4 ] || failed "lost operations"
    [ "$(grep -A4 '"hosts"' "$scratch/json" | grep -c "\"$(hostname)\"")" -eq 3 ] || failed "has other hosts"
    run list --pool "$1"
    expect_no_out
    run pool check "$1"
    expect_code 0
}
options=(--keys 3k --ops 2001 --workload load,a,d,insert,delete --threads 2 --depth 2)
one_result "$pool"
"$FARSIDE" report --csv "$scratch/again.csv" "$scratch/json" >/dev/null 2>&1 || failed "the JSON makes no report"

# Several numbers of threads, several runs, several indexes. The names of what the sessions of one index count are those
# of the process that prints them.
for rank in 0 1; do
    "$FARSIDE" bench --pool "$pool" --index race,sephash --machines 2 --rank $rank --keys 1k --ops 1k \
        --workload load,c,insert --threads 1,2 --repeat 2 --json "$scratch/$rank.json" >"$scratch/$rank.out" 2>"$scratch/$rank.err" &
    pid[$rank]=$!
done
for rank in 1 0; do
    finish $rank
    expect_code 0
done
[ "$(grep -cE "^(race|sephash) +insert " <<<"$out")" -eq 4 ] || failed "does not have all rows"
grep -q '"merges": [1-9]' "$scratch/0.json" || failed "does not say how many merges there were"

# ---- what goes wrong ----
options=(--machines 3 --keys 1k --ops 1k --workload load,c)
start 0 --rank 0 "${options[@]}"
start 1 --rank 1 "${options[@]}" --seed 5
start 2 --rank 2 "${options[@]}"
for rank in 0 1 2; do
    finish $rank
    expect_code 2
    expect_err "it was started with --seed 5, machine 0 with --seed 1"
    [ $rank = 1 ] || expect_err "(machine 1 ("
done

start 0 --rank 0 "${options[@]}"
start 1 --rank 1 "${options[@]}"
for _ in $(seq 600); do
    grep -q "waiting for machine 2" "$scratch/0.err" && break
    sleep 0.1
done
start again --rank 1 "${options[@]}"
finish again
expect_code 4
expect_err "there are two machines 1: the other one is process ${pid[1]} on $(hostname)"
start again --rank 0 "${options[@]}"
finish again
expect_code 4
expect_err "a run named 'bench' is under way, with machine 0 on $(hostname) (process ${pid[0]})"
# A run of another name does not mind.
for rank in 0 1; do
    start other$rank --machines 2 --rank $rank --run other --keys 1k --ops 1k --workload load
done
for rank in 0 1; do
    finish other$rank
    expect_code 0
done
start 2 --rank 2 "${options[@]}"
for rank in 0 1 2; do
    finish $rank
    expect_code 0
done

# In the middle of a workload: a signal, and a machine that is killed.
begin() {
    : >"$scratch/0.out"
    for rank in 0 1 2; do
        start $rank --machines 3 --rank $rank --keys 1k --ops 1g --workload load,c,b --patience 2
    done
    for _ in $(seq 600); do
        grep -q "^race *load" "$scratch/0.out" && break
        sleep 0.1
    done
}
set -m
for rank in 0 1; do
    begin
    sleep 0.3
    kill -INT "${pid[$rank]}"
    for other in 0 1 2; do
        finish $other
        [ $other = $rank ] && expect_code 130 || expect_code 1
        expect_err "interrupted: the results are incomplete"
    done
    grep -qE "^race +b " "$scratch/0.out" && failed "went on with the next workload"
done

begin
kill -KILL "${pid[1]}"
for rank in 0 2; do
    finish $rank
    expect_code 1
    expect_err "machine 1 ($(hostname)) has not answered for 2 s"
done
run list --pool "$pool"
expect_no_out

# Machine 0 is killed: the next run of the name notices that its table is left over.
begin
kill -KILL "${pid[0]}"
for rank in 1 2; do
    finish $rank
    expect_code 1
    expect_err "machine 0 ($(hostname)) has not answered for 2 s"
done
for rank in 0 1 2; do
    start $rank --rank $rank "${options[@]}" --patience 2
done
for rank in 2 1 0; do
    finish $rank
    expect_code 0
done
expect_err "an earlier run of this name has left its table"
expect_err "dropped table"
run list --pool "$pool"
expect_no_out
run pool check --repair "$pool" # the sessions of the machines that were killed
expect_code 0

# The same on a memory node.
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: only shm: was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"
memd --size 256m
pool="ucx://$address"
options=(--keys 3k --ops 2001 --workload load,a,d,insert,delete --threads 2 --depth 2)
one_result "$pool"
exit 0
