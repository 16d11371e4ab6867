# A pool on two memory nodes is opened while the second is away: what is on the first one can be read.
. /tests/guest.ash
start 7080 --size 8m --file /tmp/away.first
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

# count_keys: how many can be read; the others say which node they need.
count_keys()
{
    i=0 there=0
    while [ $i -lt 40 ]; do
        if got=$(farside get --pool "$pool" --table t "key$i" 2>/tmp/away.err); then
            [ "$got" = "value$i" ] || exit 1
            there=$((there + 1))
        else
            grep -q "node 1 ($ADDRESS:7081) is away" /tmp/away.err || exit 1
        fi
        i=$((i + 5))
    done
    echo "$there of 8 keys can be read"
}
count_keys
[ $there -gt 0 ] && [ $there -lt 8 ] || exit 1
refuse "cannot be reached" farside put --pool "$pool" --table new key value
refuse "node 1 ($ADDRESS:7081) is away" farside stat --pool "$pool"

# A session that was opened without the node finds it when it is back.
verbs_away "$pool" "$ADDRESS:7081" /tmp/away.second || exit 1

killall -9 farside
start 7081 --size 8m --file /tmp/away.second
refuse "this is the first node" farside get --pool "$pool" --table t key1
