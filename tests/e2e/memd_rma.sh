#!/usr/bin/env bash
# A memory node that offers put, get and atomics: clients that use them, and those that do not.
. "$(dirname "$0")/expect.bash"
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: nothing was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"
unset FARSIDE_SECRET FARSIDE_SECRET_FILE
export UCX_TLS=posix,self,tcp

batches() {
    run stat "$pool?mode=am"
    expect_code 0
    sed -n 's/^ *batches *\([0-9]*\) .*/\1/p' <<<"$out"
}

OPTIONS="?rma=1" memd --size 64m
pool=ucx://$address
run put --pool "$pool" key value
expect_code 0
run get --pool "$pool?mode=am" key
expect_code 0
[ "$out" = value ] || failed "is not what was put"
run put --pool "$pool?mode=am" key other
expect_code 0
run get --pool "$pool" key
expect_code 0
[ "$out" = other ] || failed "is not what was put"
# What is not sent is not counted by the node.
before=$(batches)
run bench --pool "$pool" --keys 5k --ops 5k --workload load,a --depth 8
expect_code 0
[ $(($(batches) - before)) -lt 1000 ] || failed "went by messages"
run pool check "$pool"
expect_code 0
end_memd TERM "$node"
[ "$code" = 0 ] || failed "ended with $code"

OPTIONS="?rma=1" memd --size 64m
run bench --pool "ucx://$address?mode=rma" --keys 5k --ops 5k --workload load,a --threads 2
expect_code 0

# Everybody who can connect could read it.
echo "open sesame" >"$scratch/secret"
run memd --listen "ucx://127.0.0.1:0?rma=1" --size 8m --secret-file "$scratch/secret"
expect_code 1
expect_err "rma=1 and a secret"
run memd --listen "ucx://127.0.0.1:0" --listen "ucx://127.0.0.1:0?rma=1" --size 8m
expect_code 1
expect_err "first address"
run get --pool "ucx://127.0.0.1:1?mode=put" key
expect_code 2
expect_err "auto, am or rma"
