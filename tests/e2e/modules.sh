#!/usr/bin/env bash
# Networks are modules. A program loads the libraries of a network only if a URI names that network,
# finds the module where it should, and says what is wrong if it cannot use it. CC and CFLAGS are
# those of the build.
. "$(dirname "$0")/expect.bash"

# Runs farside; $out are the names of all files that it loaded.
loaded() {
    last="farside $*"
    LD_DEBUG=files LD_DEBUG_OUTPUT=$scratch/loaded "$FARSIDE" "$@" >"$scratch/out" 2>"$scratch/err"
    code=$?
    out=$(sed -n 's/.*calling init: //p' "$scratch"/loaded.*)
    err=$(<"$scratch/err")
    rm -f "$scratch"/loaded.*
}

expect_no_network() {
    expect_code 0
    expect_out libc.so
    [[ ! $out =~ farside-|libuc[pst]|ibverbs|rdmacm ]] || failed "loads a network"
}

loaded bench --pool mem: --index race --workload load,c --keys 1k --ops 1k
expect_no_network
loaded put --pool "shm:$scratch/pool?size=16m" hello world
expect_no_network

[ -e "$BUILD/farside-ucx.so" ] || exit 0 # built without UCX
pool=ucx://127.0.0.1:1                   # nobody listens there

# From the folder of the program.
loaded get --pool "$pool" hello
expect_code 1
expect_out "$BUILD/farside-ucx.so"
expect_out libucp
expect_err "a memory node cannot be reached"
[[ $out != *ibverbs.so* || $out == *libuct_ib* ]] || failed "loads the wrong network, too"

# A program that was moved away from its modules.
mkdir "$scratch/bin" "$scratch/modules"
cp "$FARSIDE" "$scratch/bin/farside"
FARSIDE=$scratch/bin/farside
run get --pool "$pool" hello
expect_code 2
expect_err "no such fabric in this build (no farside-ucx.so, which is built where libucx-dev is"
expect_err "in any of: $scratch/bin, "
run memd --listen "ucx://127.0.0.1:0" --size 16m
expect_code 2
expect_err "no farside-ucx.so"

# FARSIDE_MODULES comes first.
export FARSIDE_MODULES=$scratch/modules
run get --pool "$pool" hello
expect_err "in any of: $scratch/modules, $scratch/bin, "
cp "$BUILD/farside-ucx.so" "$scratch/modules"
run get --pool "$pool" hello
expect_code 1
expect_err "a memory node cannot be reached"

# What is not a module of this build is refused.
echo "not a library" >"$scratch/modules/farside-ucx.so"
run get --pool "$pool" hello
expect_code 2
expect_err "cannot open the module of ucx: $scratch/modules/farside-ucx.so: "
compile() { # SOURCE
    rm "$scratch/modules/farside-ucx.so"
    $CC $CFLAGS -shared -fPIC -x c - -o "$scratch/modules/farside-ucx.so" <<<"$1" ||
        failed "does not compile: $1"
}
compile "int other;"
run get --pool "$pool" hello
expect_code 2
expect_err "farside-ucx.so is not a module of Farside"
compile "const char farside_module[512] = \"0.0.9-older\";"
run get --pool "$pool" hello
expect_code 2
expect_err "farside-ucx.so is of another build of Farside: 0.0.9-older, not 0."
