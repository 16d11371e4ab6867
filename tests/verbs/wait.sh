# A server that sleeps on a session's descriptor.
. /tests/guest.ash
start 7078 --size 16m
start 7079 --size 16m
verbs_wait "verbs://$ADDRESS:7078,$ADDRESS:7079?$PATIENT"
