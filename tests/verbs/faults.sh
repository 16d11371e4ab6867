# Strangers, fences, and nodes that die, hang and vanish.
. /tests/guest.ash
start 7050 --size 8m
start 7051 --size 8m
verbs_faults "verbs://$ADDRESS:7050,$ADDRESS:7051?$PATIENT"
