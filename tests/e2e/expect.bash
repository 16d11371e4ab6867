# For the scripts of this folder: runs the program $FARSIDE and checks what it does. A script ends
# with the first expectation that fails.
set -u
unset FARSIDE_POOL # a script sets it where it is tested

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A sanitizer searches for leaks for seconds at the end of every process, and these scripts start
# many. A script sets leaks=1 for the calls that are worth it.
leaks=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"

last="" code="" out="" err=""

# Runs farside with the arguments; sets $out, $err and the exit status $code.
run() {
    last="farside $*"
    ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=$leaks" "$FARSIDE" "$@" >"$scratch/out" 2>"$scratch/err"
    code=$?
    out=$(tr -d '\0' <"$scratch/out")
    err=$(tr -d '\0' <"$scratch/err")
}

# The same, but again if the system stopped the program for longer than its lease, or a memory node
# for longer than half of that. Then the session was declared dead, or the node did not execute a
# late batch; in both cases, nothing was done.
run_leased() {
    for _ in $(seq 100); do
        run "$@"
        [[ $err == *"was declared dead"* || $err == *"did not execute a batch"* ]] || return
    done
}

# The names of the build's indexes, one on a line.
indexes() {
    "$FARSIDE" check --help | sed -n 's/^The indexes://p' | grep -o '[^ ]*'
}

# The same as messages have them: "race, another".
index_list() { indexes | paste -sd, | sed 's/,/, /g'; }

# The objects of targets of the build whose names match, one on a line. An object without a source
# is left over from an earlier build.
objects_of() { # PATTERN...
    local pattern object source
    for pattern in "$@"; do
        find "$BUILD"/CMakeFiles/$pattern.dir/src -name '*.c.o'
    done | while read -r object; do
        source=${object##*.dir/}
        [ -e "$SOURCE/${source%.o}" ] && echo "$object"
    done
}
library_objects() { objects_of 'farside_*objects' farside_{stateless,wire,loader}; }

failed() {
    printf '%s\n  %s\n--- exit status %s, output:\n%s\n--- errors:\n%s\n' \
        "$last" "$1" "$code" "$out" "$err" >&2
    exit 1
}

expect_code() { [ "$code" -eq "$1" ] || failed "exit status is not $1"; }
expect_out() { [[ $out == *"$1"* ]] || failed "does not print: $1"; }
expect_err() { [[ $err == *"$1"* ]] || failed "does not complain: $1"; }
expect_no_out() { [ -z "$out" ] || failed "prints something"; }
expect_no_err() { [ -z "$err" ] || failed "complains"; }
