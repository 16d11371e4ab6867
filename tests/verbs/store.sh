# Every index, on two memory nodes.
. /tests/guest.ash
start 7010 --size 16m
start 7011 --size 16m
verbs_store "verbs://$ADDRESS:7010,$ADDRESS:7011?$PATIENT"
