# A client without the secret is refused; a client with a secret refuses a node that has none.
. /tests/guest.ash
echo "open sesame, please" >/tmp/secret
chmod 600 /tmp/secret
start 7030 --size 8m --secret-file /tmp/secret
pool="verbs://$ADDRESS:7030?$PATIENT"

refuse "secret" farside get --pool "$pool" key
FARSIDE_SECRET="open barley, please" refuse "secret" farside get --pool "$pool" key
FARSIDE_SECRET="open sesame, please" farside put --pool "$pool" key value || exit 1
expect value env FARSIDE_SECRET_FILE=/tmp/secret farside get --pool "$pool" key
start 7031 --size 8m
FARSIDE_SECRET="open sesame, please" refuse "secret" farside get --pool "verbs://$ADDRESS:7031" key
