#!/usr/bin/env bash
# Runs a test that depends on something a busy machine cannot promise. If it fails, it runs once more,
# and the file of retried tests gets a line. tests/needs lists these tests.
#
#   retry.sh NAME NEEDS FILE COMMAND...
name=$1 needs=$2 file=$3
shift 3
"$@"
code=$?
case $code in 0 | 77) exit "$code" ;; esac
echo "$name failed with status $code; it needs: $needs. Running it once more." >&2
printf '%s\tneeds: %s\n' "$name" "$needs" >>"$file"
exec "$@"
