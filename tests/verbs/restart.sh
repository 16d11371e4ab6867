# A memory node is away, is started, is killed, and comes back with its memory.
. /tests/guest.ash
pool="verbs://$ADDRESS:7040?$PATIENT"
refuse "$ADDRESS:7040" farside get --pool "$pool" key
start 7040 --size 8m --file /tmp/region
farside put --pool "$pool" key value || exit 1
kill -9 $node
wait $node
refuse "$ADDRESS:7040" farside get --pool "$pool" key
start 7040 --size 8m --file /tmp/region
expect value farside get --pool "$pool" key
