#!/usr/bin/env bash
# Pools with replicas=2 work on mem: and on the model. Everything else is refused before anything is made.
. "$(dirname "$0")/expect.bash"

measure() { # URI INDEX
    run bench --pool "$1" --index "$2" --keys 2k --ops 2k --workload load,a,delete
}

refused() { # URI TEXT
    measure "$1" race
    expect_err "$2"
    [ "$code" -ne 0 ] || failed "exit status is 0"
}

refused 'mem:?replicas=2' 'replicas=2 needs two memory nodes at least'
refused 'mem:?nodes=4&replicas=3' 'replicas=3: more than two are not kept yet'
refused 'mem:?nodes=3&replicas=2&voters=3' 'replicas=2 does not go with voters yet'
refused 'mem:?nodes=2&size=1m&replicas=2' 'too small for the lines of 256 clients'
refused "shm:$scratch/pool?nodes=2&size=64m&replicas=2" 'so far only mem: keeps each word twice'
[ ! -e "$scratch/pool" ] || failed "a pool was made"

for pool in 'mem:?nodes=3&size=256m&replicas=2' \
    'model:?nic=cx6&machines=2&threads=2&nodes=2&size=64m&replicas=2'; do
    measure "$pool" all
    expect_code 0
done
