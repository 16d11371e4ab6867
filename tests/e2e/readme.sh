#!/usr/bin/env bash
# Every command of the README, of docs/using.md and of docs/figures.md does what it should: they are run
# one after the other, in one shell, as somebody would who reads from the top. Benchmarks get fewer keys,
# nodes other ports, and pools names of their own. Other tests run what is only listed in `elsewhere`.
. "$(dirname "$0")/expect.bash"

source=$(cd "$(dirname "$0")/../.." && pwd)
name=readme-$$
port=$((2000 + $$ % 1000)) # without the last digit
trap 'rm -rf "$scratch" "/dev/shm/farside-$name"' EXIT

elsewhere='^(make|cc|find_package|target_link_libraries)\b' # .ci/run, installed.sh

# The indented lines of a page, without comments and with continued lines joined.
commands() { # PAGE
    sed -n '/^```/,/^```/d; s/^    //p' "$1" |
        sed -e ':a; /\\$/ { N; s/\\\n *//; ba }' -e 's/  *# .*//'
}

adapt() {
    sed -e "s,build/farside,\"\$FARSIDE\"," -e "s/shm:demo/shm:$name/" \
        -e "s/:700\([0-9]\)/:$port\1/g" -e 's/--\(keys\|ops\) [0-9]*[mk]\b/--\1 2k/g'
}

for page in README.md docs/using.md docs/figures.md; do
    commands "$source/$page" >"$scratch/lines"
    grep -q farside "$scratch/lines" || failed "$page has no commands"
    while IFS= read -r line; do
        case $line in
        "build/farside "* | "export "* | "umask "* | "kill "*) printf '%s\n' "$line" ;;
        *) [[ $line =~ $elsewhere ]] || failed "$page has a command that nothing runs: $line" ;;
        esac
    done <"$scratch/lines" | adapt >"$scratch/adapted"

    (
        cd "$scratch" || exit 1
        trap 'kill $(jobs -p) 2>/dev/null' EXIT # nodes, if a command fails
        unset FARSIDE_POOL
        set -m
        while IFS= read -r line <&3; do
            echo "\$ $line"
            eval "$line" || exit 1
            [[ $line == kill* ]] && wait
            if [[ $line == *'&' ]]; then # ready when it can be connected to
                at=$(grep -oE '[0-9.]+:[0-9]+' <<<"$line" | head -n 1)
                for _ in $(seq 600); do
                    (exec 4<>"/dev/tcp/${at/://}") 2>/dev/null && break
                    sleep 0.05
                done
            fi
        done 3<"$scratch/adapted"
    ) >"$scratch/out" 2>"$scratch/err"
    code=$? out=$(<"$scratch/out") err=$(<"$scratch/err") last=$page
    expect_code 0
done
expect_no_err
