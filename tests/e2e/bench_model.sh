#!/usr/bin/env bash
# A modelled network (model:): a benchmark on it is the same twice, wrong options are refused, and other commands
# do not have it.
. "$(dirname "$0")/expect.bash"

refused() { # what it has to say, then the arguments of bench
    local why=$1
    shift
    run bench "$@"
    expect_code 2
    expect_no_out
    expect_err "$why"
}

# ---- the same twice ----
measure() {
    run bench --pool 'model:?nic=cx6&machines=2&threads=3&depth=4&nodes=2&size=64m&doorbells=shared&lease=9000&clients=40&outstanding=64' \
        --index race --keys 1k --ops 2k --workload c,a
    expect_code 0
    expect_no_err
}
measure
expect_out "6 threads with 4 operations in flight"
expect_out "busiest: the clients' threads, for "
first=$out
measure
[ "$out" = "$first" ] || failed "is not the same as the first time"

# ---- clients that die ----
# More die than there are slots: those of dead clients are found and used again.
for clients in 40 20; do
    run bench --pool "model:?nic=cx5&machines=2&threads=8&size=256m&lease=3&clients=$clients" --deaths 2000 \
        --index chime --keys 5k --ops 60k --key-size 8 --value-size 8 --workload a --dist uniform
    expect_code 0
    expect_no_err
    [[ $out != *stopped* && $out != *error* ]] || failed "does not come to its end"
done

# ---- many clients that fill an empty table ----
# They split the same few parts of it at first. None may wait for long, or give up.
run bench --pool 'model:?nic=cx6&machines=4&threads=8' --index all --workload load --keys 50k
expect_code 0
while read -r index rate; do
    [ "${rate//,/}" -gt 500000 ] || failed "$index loads only $rate keys in a second"
done < <(awk '$2 == "load" { print $1, $3 }' <<<"$out")

# ---- popular keys ----
# Changes of one key by one machine take turns, and some are done with another one. groups=0 turns that off.
popular() { # GROUPS
    run bench --pool "model:?machines=2&threads=8&depth=8&groups=$1" --index race --keys 100 --ops 20k --workload update \
        --json "$scratch/json"
    expect_code 0
}
popular 1
expect_out "were done with another one of their process"
grep -q '"joined": [1-9]' "$scratch/json" || failed "does not count in its JSON those that joined others"
popular 0
[[ $out != *"were done with another"* ]] || failed "has groups though it must not"
! grep -q '"joined"' "$scratch/json" || failed "counts in its JSON what cannot be"
refused "option 'groups' takes a number from 0 to 1, not '2'" --pool 'model:?groups=2'

# ---- a fixed rate, in virtual time ----
run bench --pool 'model:?threads=2&depth=4&size=64m' --index race --keys 1k --ops 4k --workload load,c,iterate \
    --rate 200k --json "$scratch/json"
expect_code 0
expect_out "at a fixed rate of 200,000 operations per second, of all threads together"
[ "$(grep -cE "^  rate: (199,9|200,0)[0-9]+ of 200,000 ops/s; operations began up to" <<<"$out")" -eq 1 ] ||
    failed "does not keep to a rate, or has one for load or iterate"
[[ $out != *"fell behind"* ]] || failed "fell behind at a low rate"
[ "$(grep -c '"pace": null' "$scratch/json")" -eq 2 ] || failed "has a pace without a rate"
grep -q '"fell_behind": false' "$scratch/json" || failed "has no pace in its JSON"
run bench --pool 'model:?size=64m' --index race --keys 1k --ops 4k --workload c --rate 10m
expect_code 0
expect_out "it fell behind: the last operation began"

# ---- wrong options ----
refused "nic=x is not one of cx6, cx5" --pool 'model:?nic=x'
refused "option 'threads' takes a number from 1 to 1024, not '0'" --pool 'model:?threads=0'
refused "option 'machines' takes a number from 1 to 64, not '65'" --pool 'model:?machines=65'
refused "option 'depth' takes a number from 1 to" --pool 'model:?depth=0'
refused "option 'nodes' takes a number from 1 to 16, not '17'" --pool 'model:?nodes=17'
refused "option 'outstanding' takes a number from 0 to" --pool 'model:?outstanding=x'
refused "machines=64 with threads=64 each are more than 1024 clients: take fewer" --pool 'model:?machines=64&threads=64'
refused "sim: is called model: now" --pool 'sim:?nic=cx6'
refused "doorbells=x is neither own nor shared" --pool 'model:?doorbells=x'
refused "locks=x is neither host nor nic" --pool 'model:?locks=x'
refused "option 'gbits' takes a number from 1 to 1600, not '0'" --pool 'model:?gbits=0'
refused "model: has no option 'foo'" --pool 'model:?foo=1'
refused "'x' follows model:, where only options are allowed" --pool model:x
for option in '--threads 2' '--threads 1,2' '--depth 4' '--processes 2'; do
    # shellcheck disable=SC2086 # an option and its value
    refused "the clients of model: are in its URI (machines=, threads=, depth=), not in options" --pool model: $option
done
refused "--counters is about real threads, which model: does not have: leave it out, or use another pool" --pool model: \
    --counters
refused "--raw measures real time, which model: does not have: leave it out, or use another pool" --pool model: --raw

# ---- clients that die ----
refused "--deaths needs clients that are modelled: use it with --pool model:, or leave it out" --pool mem: --deaths 5
refused "invalid --deaths 'x'" --pool model: --deaths x
dying() { # clients that die in a second
    run bench --pool 'model:?threads=8&size=64m&lease=3&clients=400' --index race --keys 1k --ops 40k --workload a \
        --json "$scratch/json" --deaths "$1"
    expect_code 0
    expect_no_err
}
dying 2000
deaths=$(sed -n 's/.* "deaths": \([0-9]*\),.*/\1/p' "$scratch/json")
[ "${deaths:-0}" -gt 1 ] || failed "has no deaths in the JSON"
expect_out "  $deaths clients died; a new client took the place of each"
[[ $out != *interrupted* ]] || failed "takes the operations of clients that died for an interruption"
dying 0
grep -q '"deaths": 0,' "$scratch/json" || failed "has deaths that nobody asked for"
[[ $out != *died* ]] || failed "speaks of deaths that nobody asked for"

# ---- other commands ----
for command in 'get key' 'put key value' 'list' 'stat' 'pool check'; do
    # shellcheck disable=SC2086 # a command and its arguments
    run $command --pool 'model:?threads=4'
    expect_code 2
    expect_no_out
    expect_err "model: is a modelled network, which only farside bench and farside reproduce have"
done
exit 0
