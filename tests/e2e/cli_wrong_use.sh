#!/usr/bin/env bash
# Used wrongly, the program exits with 2, prints nothing to stdout, and says what it expected.
. "$(dirname "$0")/expect.bash"

refused() { # what it has to say, then the arguments
    local why=$1
    shift
    run "$@"
    expect_code 2
    expect_no_out
    expect_err "$why"
}

refused "unknown command 'frobnicate' (available: bench, compare, reproduce, report, check, get, exists, put, insert, update, incr, del, list, keys, scan, table, dump, load, pool, stat" frobnicate
refused "unknown option '--frobnicate'" --frobnicate

# Unknown options, missing values, and values that are not expected.
for command in bench get exists put insert update incr del list keys scan stat dump load; do
    refused "unknown option '--frobnicate'" "$command" --frobnicate
    refused "unknown option '-z'" "$command" -z
    refused "option '--pool' needs a value" "$command" --pool
    refused "option '--help=x' takes no value" "$command" --help=x
    refused "Try 'farside $command --help'" "$command" --frobnicate
done
refused "unexpected argument" bench more
refused "unexpected argument" stat --pool mem: more
refused "unexpected argument" get --pool mem: key more
refused "unexpected argument" put --pool mem: key value more
refused "unexpected argument" list --pool mem: key
refused "unexpected argument" scan --pool mem: key
refused "missing option --pool URI" list
refused "missing option --pool URI" scan --from a
refused "unknown option '--from'" list --pool mem: --from a
refused "unknown option '--from'" keys --pool mem: --from a
refused "unknown option '--keys-only'" keys --pool mem: --keys-only
refused "--hex and --null exclude each other" keys --pool mem: --hex -0
refused "--prefix excludes --from and --to" scan --pool mem: --prefix a --to b
refused "invalid key: expected 1 to 4096 bytes, not 0" keys --pool mem: --prefix ''
refused "unexpected argument 'key'" keys --pool mem: key
refused "invalid --limit '0': expected a number from 1" list --pool mem: --limit 0
refused "invalid key: expected 1 to 4096 bytes, not 0" scan --pool mem: --from ''
refused "invalid key 'xy': expected two hexadecimal digits" scan --pool mem: --hex --to xy
refused "missing argument KEY" get --pool mem:
refused "unexpected argument 'more'" exists --pool mem: key more
refused "unexpected argument '3'" incr --pool mem: key 2 3
refused "unexpected argument '-3'" incr --pool mem: key 2 -3
for by in x 1.5 '' - 1k 9223372036854775808 ' 1'; do
    refused "invalid number '$by': expected a decimal number of 64 bits" incr --pool mem: key "$by"
done
refused "unknown option '--tuning'" update --pool mem: --tuning groups=2 key value
refused "missing option --pool URI" get key
refused "missing option --pool URI" stat

# Values of the benchmark.
refused "invalid --keys 'many': expected a number from 1" bench --keys many
refused "invalid --keys '0'" bench --keys 0
refused "invalid --keys '1.5'" bench --keys 1.5
refused "invalid --keys '-1'" bench --keys -1
refused "invalid --keys '5x'" bench --keys 5x
refused "invalid --keys '5kk'" bench --keys 5kk
refused "invalid --keys '2g'" bench --keys 2g
refused "invalid --keys ''" bench --keys ''
refused "invalid --ops '1t'" bench --ops 1t
refused "invalid --threads '0'" bench --threads 0
refused "invalid --depth '2000': expected a number from 1 to 1024" bench --depth 2000
refused "invalid --key-size '4': expected a size from 8 to 4k bytes" bench --key-size 4
refused "invalid --value-size '5m': expected a size from 0 to 4m bytes" bench --value-size 5m
refused "invalid --key-size '8-': expected a size" bench --key-size 8-
refused "invalid --key-size '-8'" bench --key-size=-8
refused "invalid --key-size '16-8'" bench --key-size 16-8
refused "invalid --key-size '8-16-32'" bench --key-size 8-16-32
refused "invalid --value-size '16-5m'" bench --value-size 16-5m
refused "values of different sizes must have at least 16 bytes, by which their sizes are checked, not 8" \
    bench --value-size 8-64
refused "invalid --dist 'pareto': expected zipfian, uniform or latest" bench --dist pareto
refused "invalid --theta '0': expected a number greater than 0" bench --theta 0
refused "invalid --theta 'inf'" bench --theta inf
refused "invalid --theta 'nan'" bench --theta nan
refused "invalid --theta 'x'" bench --theta x
refused "invalid --seed 'x': expected a whole number" bench --seed x
refused "unknown index 'btree' (available: all, $(index_list))" bench --index btree
refused "unknown index 'btree' (available: all, $(index_list))" bench --index race,btree
refused "--compare is a command of its own: farside compare lmdb" bench --index race,chime --compare lmdb
refused "unknown workload 'z' (available: load, a, b, c, d, e, f, get" bench --workload load,z
refused "mix 'get=70+insert=20': the percentages sum to 90, not to 100" bench --workload load,get=70+insert=20
refused "mix 'grow=100': unknown operation 'grow' (available: get, miss" bench --workload grow=100
refused "workload 'delete=50+get=50' deletes 10 keys" bench --keys 10 --ops 20 --workload delete=50+get=50
refused "workload 'scan=10+get=90' scans ranges of keys" bench --index race --workload scan=10+get=90
refused "workload 'e' scans ranges of keys, but index race keeps no order" bench --workload e
refused "workload 'scan' scans" bench --workload load,scan --index race
refused "workload 'load' must come first" bench --workload a,load
refused "workload 'a' has no keys left" bench --keys 10 --ops 10 --workload load,delete,a

# Pools.
for command in "bench" "stat" "get key" "exists key" "put key value" "insert key value" \
    "update key value" "incr key" "del key" "table drop table" "table create table" "table list" \
    "dump $scratch/none"; do
    # shellcheck disable=SC2086 # a command and its arguments
    set -- $command
    refused "no such fabric in this build" "$@" --pool tape:
    refused "the pool URI is not understood" "$@" --pool nonsense
    refused "the pool URI is not understood" "$@" --pool "mem:?size=lots"
    refused "the pool URI is not understood" "$@" --pool "mem:?colour=red"
done

# Keys.
refused "invalid key 'abc': expected two hexadecimal digits" get --pool mem: --hex abc
refused "expected two hexadecimal digits" get --pool mem: --hex zz
refused "expected 1 to 4096 bytes" get --pool mem: ''
refused "cannot create the table 'default': no such index in this build" put --pool mem: --index btree key value
