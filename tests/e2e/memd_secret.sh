#!/usr/bin/env bash
# A memory node with a secret lets in only clients that know it.
. "$(dirname "$0")/expect.bash"
if "$FARSIDE" get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: nothing was tested"
    exit 0
fi
. "$(dirname "$0")/memd.bash"
unset FARSIDE_SECRET FARSIDE_SECRET_FILE
umask 077

echo "open sesame, please" >"$scratch/secret"
printf 'open sesame, please' >"$scratch/same"
echo "open barley, please" >"$scratch/wrong"
: >"$scratch/empty"
memd --size 16m --secret-file "$scratch/secret"
pool=ucx://$address

run put --pool "$pool?secret=$scratch/secret" key value
expect_code 0
run get --pool "$pool?secret=$scratch/same" key
expect_code 0
[ "$out" = value ] || failed "is not what was put"
FARSIDE_SECRET="open sesame, please" run get --pool "$pool" key
expect_code 0
FARSIDE_SECRET_FILE=$scratch/secret run get --pool "$pool" key
expect_code 0

run get --pool "$pool" key
expect_code 1
expect_err "needs a secret"
expect_err "$address"
run get --pool "$pool?secret=$scratch/wrong" key
expect_code 1
expect_err "the client does not know the node's secret"
FARSIDE_SECRET="open sesame, pleas" run get --pool "$pool" key
expect_code 1
expect_err "the client does not know the node's secret"
run get --pool "$pool?secret=$scratch/empty" key
expect_code 2
expect_err "is empty"
printf 123456789012345 >"$scratch/short"
run get --pool "$pool?secret=$scratch/short" key
expect_code 2
expect_err "the secret in $scratch/short has 15 bytes, but needs at least 16"
FARSIDE_SECRET=short run get --pool "$pool" key
expect_code 2
expect_err "the secret has 5 bytes, but needs at least 16"
cp "$scratch/secret" "$scratch/public"
for mode in 604 602; do
    chmod $mode "$scratch/public"
    run get --pool "$pool?secret=$scratch/public" key
    expect_code 2
    expect_err "the secret in $scratch/public: chmod o= it"
done
chmod 640 "$scratch/public" # of a group
run get --pool "$pool?secret=$scratch/public" key
expect_code 0
run memd --listen ucx://127.0.0.1:0 --size 16m --secret-file "$scratch/short"
expect_code 2
expect_err "cannot use the secret"
run get --pool "$pool?secret=$scratch/none" key
expect_code 1
expect_err "cannot read the secret"
run stat --pool "$pool?secret=$scratch/secret" --json
expect_code 0
expect_out '"refused": 3'

# A node that has none cannot be mistaken for it.
memd --size 16m
run get --pool "ucx://$address?secret=$scratch/secret" key
expect_code 1
expect_err "the node has none"

# The environment is the node's, too.
export FARSIDE_SECRET="open sesame, please"
memd --size 16m
unset FARSIDE_SECRET
run put --pool "ucx://$address?secret=$scratch/secret" key value
expect_code 0
run put --pool "ucx://$address" key value
expect_code 1

# With several network devices in common, and settings that let UCX use them, the door has nothing against clients.
export UCX_MAX_EAGER_RAILS=2
memd --size 16m --threads 2 --secret-file "$scratch/secret"
for i in 1 2 3; do
    run put --pool "ucx://$address?secret=$scratch/secret" "key$i" value
    expect_code 0
done
end_memd TERM "$node"
[ "$code" = 0 ] || failed "the node ended with $code"
[ ! -s "$scratch/memd.err" ] || failed "the node says: $(<"$scratch/memd.err")"
