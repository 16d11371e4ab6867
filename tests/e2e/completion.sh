#!/usr/bin/env bash
# Completion for bash knows the commands and their options, all of them and no others, and the tables of a
# pool.
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
    complete_words farside ''
    expect_words $commands --help --version
    complete_words farside ge
    expect_words get
    for command in $commands; do
        options=$("$FARSIDE" "$command" --help | grep -oE -- '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u)
        complete_words farside "$command" --
        expect_words $options
        # Which of them take a value.
        for option in $options; do
            "$FARSIDE" "$command" --help | grep -qE -- "^ +$option [A-Z]" && value=0 || value=1
            _farside_value "$FARSIDE" "$command" "$option" ''
            [ $? = "$value" ] || failed "$option takes a value, or none"
        done
    done
    complete_words farside get --index ''
    expect_words $(indexes)
    complete_words farside reproduce ''
    expect_words $("$FARSIDE" reproduce --list | sed -n 's/^\([a-z-]*\): .*/\1/p') all
    complete_words farside compare ''
    expect_words lmdb cuckoo redis memcached all
    complete_words farside bench --index ''
    expect_words $(indexes) all
    complete_words farside check --index 'race,ch'
    expect_words race,chime
}
complete_words farside table ''
expect_words list create drop
complete_words farside pool ''
expect_words check remove
complete_words farside get --pool s
expect_words shm:
complete_words farside bench --keys ''
expect_words ''

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
complete_words farside load "$scratch/ba"
expect_words "$scratch/backup"
complete_words farside dump "$scratch/ba"
expect_words "$scratch/backup"
complete_words farside report "$scratch/ba"
expect_words "$scratch/backup"

# A pool that does not exist gives no answer, and no message.
err=$(FARSIDE_POOL=shm:$scratch/none complete_words "$FARSIDE" get --table '' 2>&1)
expect_no_err
