# A pool on two memory nodes is opened while the second is away: what is on the first one can be read.
. /tests/guest.ash
start 7080 --size 8m --file /tmp/away.first
first=$node
start 7081 --size 8m --file /tmp/away.second
second=$node
pool="verbs://$ADDRESS:7080,$ADDRESS:7081?$PATIENT"
{
    echo '{"table":"t","index":"race","tuning":"groups=2"}'
    i=0
    while [ $i -lt 40 ]; do
        echo "{\"key\":\"key$i\",\"value\":\"value$i\"}"
        i=$((i + 1))
    done
} >/tmp/away.pairs
farside load --pool "$pool" /tmp/away.pairs || exit 1
kill -9 $second
wait $second

# Some keys can be read; the others say which node they need.
i=0 got=0 missed=0
until [ $got -gt 0 ] && [ $missed -gt 0 ]; do
    if [ $i = 40 ]; then
        echo "$got keys were read and $missed not, though they are on two nodes"
        exit 1
    fi
    if value=$(farside get --pool "$pool" --table t "key$i" 2>/tmp/away.err); then
        [ "$value" = "value$i" ] || exit 1
        got=$((got + 1))
    else
        missed=$((missed + 1))
    fi
    if ! grep -q "node 1 ($ADDRESS:7081) is away" /tmp/away.err; then
        cat /tmp/away.err
        exit 1
    fi
    i=$((i + 1))
done
refuse "cannot be reached" farside put --pool "$pool" --table new key value
refuse "node 1 ($ADDRESS:7081) is away" farside stat --pool "$pool"

# A session that was opened without the node finds it when it is back.
verbs_away "$pool" "$ADDRESS:7081" /tmp/away.second || exit 1

kill -9 $first
wait $first
refuse "this is the first node" farside get --pool "$pool" --table t key1
