# The conformance suite on one memory node, and on two.
. /tests/guest.ash
start 7000 --size 8m
verbs_conformance "verbs://$ADDRESS:7000?$PATIENT" || exit 1
kill $node
start 7001 --size 8m
start 7002 --size 8m
verbs_conformance "verbs://$ADDRESS:7001,$ADDRESS:7002?$PATIENT"
