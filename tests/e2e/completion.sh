#!/usr/bin/env bash
# Completion for bash knows the commands and their options, as the program's help has them, and the tables
# of a pool.
. "$(dirname "$0")/expect.bash"

# shellcheck disable=SC1091 # it is checked by itself
. "$SOURCE/packaging/completion/farside"
complete -p farside | grep -q "_farside" || failed "is not registered"

# complete WORD...: completes the last word; sets $out to the answers, one on each line.
complete_words() {
    last="completion of: $*"
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMP_LINE="$*"
    _farside
    out=$(printf '%s\n' "${COMPREPLY[@]}")
}
expect_words() { # the answers, in any order
    [ "$(LC_ALL=C sort <<<"$out")" = "$(printf '%s\n' "$@" | LC_ALL=C sort)" ] || failed "answers something else than: $*"
}

commands=$("$FARSIDE" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
[ -n "$commands" ] || failed "lists no commands"
# shellcheck disable=SC2086 # one word for each command
{
    complete_words "$FARSIDE" ''
    expect_words $commands --help --version
    complete_words "$FARSIDE" ge
    expect_words get
    for command in $commands; do
        options=$("$FARSIDE" "$command" --help | grep -oE -- '^  (-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u)
        complete_words "$FARSIDE" "$command" --
        expect_words $options
    done
    complete_words "$FARSIDE" get --index ''
    expect_words $(indexes)
    complete_words "$FARSIDE" reproduce ''
    expect_words $("$FARSIDE" reproduce --list | sed -n 's/^\([a-z-]*\): .*/\1/p') all
    complete_words "$FARSIDE" compare ''
    expect_words lmdb cuckoo redis memcached all
    complete_words "$FARSIDE" bench --index ''
    expect_words $(indexes) all
    complete_words "$FARSIDE" check --index 'race,ch'
    expect_words race,chime
}
complete_words "$FARSIDE" table ''
expect_words list create drop
complete_words "$FARSIDE" table drop --
expect_words --pool --index --help
complete_words "$FARSIDE" pool ''
expect_words check remove
complete_words "$FARSIDE" get --pool s
expect_words shm:
complete_words "$FARSIDE" bench --keys ''
expect_words ''
complete_words "$FARSIDE" bench --raw --rep
expect_words --repeat --report
complete_words "$FARSIDE" bench --dist u
expect_words uniform

# Tables, by FARSIDE_POOL or by --pool; also behind =, and with a name that the shell has to quote.
run table create --pool "shm:$scratch/pool?size=16m" people
expect_code 0
run table create --pool "shm:$scratch/pool" "pets and plants"
complete_words "$FARSIDE" get --table ''
expect_words ''
complete_words "$FARSIDE" get --pool "shm:$scratch/pool" --table pe
expect_words people 'pets\ and\ plants'
export FARSIDE_POOL=shm:$scratch/pool
complete_words "$FARSIDE" get --table peo
expect_words people
complete_words "$FARSIDE" list --table = peo
expect_words people
complete_words "$FARSIDE" list --table =
expect_words people 'pets\ and\ plants'
complete_words "$FARSIDE" table drop pet
expect_words 'pets\ and\ plants'

# Files.
touch "$scratch/backup"
complete_words "$FARSIDE" load "$scratch/ba"
expect_words "$scratch/backup"
complete_words "$FARSIDE" dump "$scratch/ba"
expect_words "$scratch/backup"
complete_words "$FARSIDE" report "$scratch/ba"
expect_words "$scratch/backup"
complete_words "$FARSIDE" bench --json "$scratch/ba"
expect_words "$scratch/backup"
complete_words "$FARSIDE" stat --json "$scratch/ba" # no value
expect_words ''

# A pool that does not exist gives no answer, and no message.
err=$(FARSIDE_POOL=shm:$scratch/none complete_words "$FARSIDE" get --table '' 2>&1)
expect_no_err
err=$(complete_words "$FARSIDE" get --no/such '' 2>&1)
expect_no_err
err=$(complete_words "$FARSIDE" frobnicate -- 2>&1)
expect_no_err
