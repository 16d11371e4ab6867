# ucx: by UCX's put and get on a reliable connection. Its atomics are the node's there: UCX uses
# those of a network card only if it has AND, OR and XOR as well.
. /tests/guest.ash
if farside get --pool ucx:x key 2>&1 | grep -q "no such fabric"; then
    echo "built without ucx: nothing was tested"
    exit 0
fi
export UCX_TLS=rc_verbs UCX_NET_DEVICES=rxe0:1 SCHEME=ucx OPTIONS='?rma=1'
start 7000 --size 8m
pool="ucx://$ADDRESS:7000?mode=rma&lease=600000&$PATIENT"
expect "" farside put --pool "$pool" key value
expect value farside get --pool "$pool" key
kill -USR1 $node
tries=0
until grep -q '^batches ' /tmp/node.7000 || [ $tries = 100 ]; do
    tries=$((tries + 1))
    usleep 100000
done
expect "batches 0" grep '^batches ' /tmp/node.7000 # nothing went by messages
