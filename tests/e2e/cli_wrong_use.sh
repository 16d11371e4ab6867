#!/usr/bin/env bash
# Used wrongly, the program exits with 2, prints nothing, and says what it expected.
. "$(dirname "$0")/expect.bash"

refused() { # what it has to say, then the arguments
    local why=$1
    shift
    run "$@"
    expect_code 2
    expect_no_out
    expect_err "$why"
}

refused "'frobnicate' is no command; there are bench, check, get, put, del, list, scan, pool, stat" frobnicate

# Options that are not there, lack a value, or have one too many.
for command in bench get put del list scan stat drop; do
    refused "unknown option '--frobnicate'" "$command" --frobnicate
    refused "unknown option '-z'" "$command" -z
    refused "option '--pool' needs a value" "$command" --pool
    refused "option '--help=x' takes no value" "$command" --help=x
    refused "Try 'farside $command --help'" "$command" --frobnicate
done
refused "one argument too many" bench more
refused "one argument too many" stat --pool mem: more
refused "one argument too many" get --pool mem: key more
refused "one argument too many" put --pool mem: key value more
refused "one argument too many" list --pool mem: key
refused "one argument too many" scan --pool mem: key
refused "--pool URI is needed" list
refused "--pool URI is needed" scan --from a
refused "unknown option '--from'" list --pool mem: --from a
refused "--limit is '0', but has to be a number from 1" list --pool mem: --limit 0
refused "a key has from 1 to 4096 bytes" scan --pool mem: --from ''
refused "'xy' is not in hexadecimal digits" scan --pool mem: --hex --to xy
refused "a KEY is needed" get --pool mem:
refused "--pool URI is needed" get key
refused "--pool URI is needed" stat

# Values of the benchmark.
refused "--keys is 'many', but has to be a number from 1" bench --keys many
refused "--keys is '0', but" bench --keys 0
refused "--keys is '1.5', but" bench --keys 1.5
refused "--keys is '-1', but" bench --keys -1
refused "--keys is '5x', but" bench --keys 5x
refused "--keys is '5kk', but" bench --keys 5kk
refused "--keys is '2g', but" bench --keys 2g
refused "--keys is '', but" bench --keys ''
refused "--ops is '1t', but" bench --ops 1t
refused "--threads is '0', but" bench --threads 0
refused "--depth is '2000', but has to be a number from 1 to 1024" bench --depth 2000
refused "--key-size is '4', but has to be a size in bytes from 8 to 4k" bench --key-size 4
refused "--value-size is '5m', but has to be a size in bytes from 0 to 4m" bench --value-size 5m
refused "--dist is 'pareto', but has to be zipfian, uniform or latest" bench --dist pareto
refused "--theta is '1', but has to lie between 0 and 1" bench --theta 1
refused "--theta is 'x', but" bench --theta x
refused "--seed is 'x', but has to be a whole number" bench --seed x
refused "unknown index 'btree'; there are all, race" bench --index btree
refused "unknown workload 'z'; there are load, a, b, c, d, e, f, get" bench --workload load,z
refused "workload 'e' scans ranges of keys, and index race keeps them in no order" bench --workload e
refused "workload 'scan' scans" bench --workload load,scan --index race
refused "workload 'load' starts from an empty table" bench --workload a,load
refused "workload 'a' would find no keys" bench --keys 10 --ops 10 --workload load,delete,a

# Pools.
for command in "bench" "stat" "get key" "put key value" "del key" "drop table"; do
    # shellcheck disable=SC2086 # a command and its arguments
    set -- $command
    refused "no such fabric in this build" "$@" --pool tape:
    refused "the pool URI is not understood" "$@" --pool nonsense
    refused "the pool URI is not understood" "$@" --pool "mem:?size=lots"
    refused "the pool URI is not understood" "$@" --pool "mem:?colour=red"
done

# Keys.
refused "two digits for each byte" get --pool mem: --hex abc
refused "not in hexadecimal digits" get --pool mem: --hex zz
refused "from 1 to 4096 bytes" get --pool mem: ''
refused "no such index in this build" put --pool mem: --index btree key value
