# What the scripts of this folder share; they run in the virtual machine, by busybox sh.
ADDRESS=10.77.0.1
PATIENT="timeout=60000" # what is slow here is not what is tested

# start PORT [ARGUMENT...]: a memory node, in the background; its process is $node afterwards.
start()
{
    port=$1
    shift
    farside memd --listen "verbs://$ADDRESS:$port" "$@" >"/tmp/node.$port" 2>&1 &
    node=$!
    tries=0
    until grep -q '^listening at ' "/tmp/node.$port"; do
        tries=$((tries + 1))
        if [ $tries = 300 ] || ! kill -0 $node 2>/dev/null; then
            echo "the memory node at port $port does not come up:"
            cat "/tmp/node.$port"
            exit 1
        fi
        usleep 100000
    done
}

# expect WHAT COMMAND...: the command succeeds and prints exactly that.
expect()
{
    wanted=$1
    shift
    got=$("$@" 2>&1) || {
        echo "failed: $*"
        echo "$got"
        exit 1
    }
    [ "$got" = "$wanted" ] || {
        echo "$*: '$got' instead of '$wanted'"
        exit 1
    }
}

# refuse WHAT COMMAND...: the command fails and says something with that in it.
refuse()
{
    wanted=$1
    shift
    if got=$("$@" 2>&1); then
        echo "should have failed: $*"
        exit 1
    fi
    case $got in
    *"$wanted"*) echo "$got" ;;
    *)
        echo "$*: '$got', which says nothing of '$wanted'"
        exit 1
        ;;
    esac
}
