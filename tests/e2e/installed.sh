#!/usr/bin/env bash
# Programs outside of this project build and run with what `cmake --install` leaves: with
# pkg-config, with find_package(farside), with either library, in old and new dialects, and with any
# names of their own. They load a network only if they use it. `make uninstall` removes all files.
# CC and CFLAGS are those of the build, NM is its nm.
. "$(dirname "$0")/expect.bash"
. "$(dirname "$0")/memd.bash"

stage=$scratch/stage
here=$SOURCE/tests/e2e

# Runs a command that has to succeed.
must() {
    last="$*"
    "$@" >"$scratch/out" 2>"$scratch/err"
    code=$?
    out=$(<"$scratch/out") err=$(<"$scratch/err")
    [ "$code" -eq 0 ] || failed "fails"
}

# The files below $stage are those of the configured prefix.
must env DESTDIR="$stage" cmake --install "$BUILD"
farside_pc=$(find "$stage" -name farside.pc)
export PKG_CONFIG_PATH=${farside_pc%/*}

# directory VARIABLE FILE: the directory that farside.pc names, which has to contain the file.
directory() {
    must pkg-config --variable="$1" farside
    [ -e "$stage$out/$2" ] || failed "$2 was not installed there"
}
directory libdir libfarside.a
libdir=$stage$out
directory includedir farside.h
includedir=$stage$out
must pkg-config --variable=prefix farside
prefix=$stage$out
[ -s "$prefix/share/bash-completion/completions/farside" ] || failed "completion was not installed"
[ -s "$prefix/share/man/man1/farside-load.1" ] || failed "a manual page was not installed"
export LD_LIBRARY_PATH=$libdir

# cc OUTPUT SOURCE... -- what pkg-config is asked for
compile() {
    local output=$1 sources=() libs
    shift
    while [ "$1" != -- ]; do
        sources+=("$1")
        shift
    done
    libs=$(pkg-config --define-variable=libdir="$libdir" --cflags --libs "${@:2}" \
        --define-variable=includedir="$includedir" farside) ||
        failed "pkg-config fails"
    if [ "${2:-}" = --static ]; then # -lfarside takes the shared library if it is there
        libs=${libs/-lfarside/-l:libfarside.a}
    fi
    must $CC $CFLAGS "${sources[@]}" $libs -o "$output"
}

greets() { # PROGRAM LIBRARY: shared or static
    must "$1"
    expect_out "hello -> far world"
    must readelf -d "$1"
    case $2 in
    shared) expect_out libfarside.so.0 ;;
    static) [[ $out != *libfarside* ]] || failed "needs the shared library" ;;
    esac
}

compile "$scratch/by_pkg_config" "$here/example.c" --
greets "$scratch/by_pkg_config" shared
compile "$scratch/by_pkg_config_static" "$here/example.c" -- --static
greets "$scratch/by_pkg_config_static" static

# All internal names, those of Boost, and a few that any program may have.
{
    echo '#include <stdlib.h>'
    {
        "$NM" -g --defined-only $(library_objects) |
            awk 'NF == 3 && $3 !~ /^far_|\./ { print $3 }'
        printf '%s\n' make_fcontext jump_fcontext fail link_down conn_ask class_for leg_done ring_close \
            batch_flush op_begin
    } | sort -u | sed 's/.*/void &(void); void &(void) { abort(); }/'
} >"$scratch/names.c"
compile "$scratch/own_names" "$here/example.c" "$scratch/names.c" -- --static
greets "$scratch/own_names" static
compile "$scratch/own_names_shared" "$here/example.c" "$scratch/names.c" --
greets "$scratch/own_names_shared" shared

# by_cmake NAME [OPTION]
by_cmake() {
    must cmake -S "$here/installed" -B "$scratch/$1" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_FLAGS="$CFLAGS" -DEXAMPLE="$here/example.c" "${@:2}"
    must cmake --build "$scratch/$1"
}
by_cmake both
greets "$scratch/both/shared" shared
greets "$scratch/both/static" static

# The header, in dialects of C and C++.
dialect() { # COMPILER LANGUAGE STANDARD
    must "$1" -x "$2" -std="$3" -pedantic -Wall -Wextra -Werror -I"$includedir" \
        -fsyntax-only - <<<'#include <farside.h>'
}
for standard in c89 c99 c11 c17; do
    dialect "$CC" c "$standard"
done
if command -v c++ >/dev/null; then
    for standard in c++11 c++20; do
        dialect c++ c++ "$standard"
    done
else
    echo "no c++ here: the header was not compiled as C++"
fi

# An embedder's program under the thread sanitizer, with a library that is not compiled for it.
if [ -z "$CFLAGS" ]; then
    CFLAGS=-fsanitize=thread
    compile "$scratch/threads" "$here/installed/threads.c" -- # no settings of UCX are needed
    CFLAGS=
    must env -u UCX_MEM_EVENTS "$scratch/threads"
    expect_out done
    expect_no_err
fi

# Which libraries a program loads. A sanitizer has a handler of its own, so only others show that
# nobody else changes it.
compile "$scratch/networks" "$here/installed/networks.c" --
must "$scratch/networks" mem:?size=16m "shm:$scratch/pool?size=16m"
expect_out "/pool?size=16m: hello world"
expect_out "has /libfarside.so"
expect_out "SIGSEGV: as before"
[[ ! $out =~ has\ /(farside-|libuc|libib|libsodium) ]] || failed "loads a network"
if [ -e "$libdir/farside/farside-ucx.so" ]; then
    FARSIDE=$prefix/bin/farside
    memd --size 16m
    must "$scratch/networks" "ucx://$address"
    expect_out "ucx://$address: hello world"
    expect_out "has /farside-ucx.so"
    expect_out "has /libucp.so"
    [[ $out != *farside-verbs* ]] || failed "loads the wrong network, too"

    compile "$scratch/networks_static" "$here/installed/networks.c" -- --static
    memd --size 16m
    must "$scratch/networks_static" "ucx://$address"
    expect_out "ucx://$address: hello world"
    [[ $out != */farside-* ]] || failed "opens a module, although it is linked with the network"
fi

# The shared library does not need the development packages of the networks.
export PKG_CONFIG_LIBDIR=$scratch/empty
by_cmake shared_only -DSTATIC=OFF
greets "$scratch/shared_only/shared" shared
compile "$scratch/without_packages" "$here/example.c" --
greets "$scratch/without_packages" shared

# Only directories are left.
must make -C "$SOURCE" uninstall BUILD="$BUILD" DESTDIR="$stage"
out=$(find "$stage" ! -type d -o -name farside)
[ -z "$out" ] || failed "leaves something behind"
