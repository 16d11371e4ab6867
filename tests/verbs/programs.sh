# A memory node and its clients as separate processes.
. /tests/guest.ash
start 7020 --size 32m
pool="verbs://$ADDRESS:7020?$PATIENT"

farside put --pool "$pool" red crimson || exit 1
expect crimson farside get --pool "$pool" red
farside put --pool "$pool" red scarlet || exit 1
expect scarlet farside get --pool "$pool" red
farside del --pool "$pool" red || exit 1
refuse "no such key" farside get --pool "$pool" red
farside bench --pool "$pool" --index all --workload load,a,c --keys 300 --ops 500 --depth 8 || exit 1
farside stat --pool "$pool" || exit 1

# Nobody is connected: what it uses of the processor, in ticks of 10 ms.
ticks()
{
    awk '{print $14 + $15}' "/proc/$node/stat"
}
before=$(ticks)
sleep 5
used=$(($(ticks) - before))
echo "an idle memory node used $used ticks of 500"
[ "$used" -le 5 ] || exit 1
kill $node
wait $node || exit 1
