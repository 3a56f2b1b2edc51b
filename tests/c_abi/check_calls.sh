#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: check_calls.sh arguments_test.c header.h ...
#
# The test of arguments calls every function with arguments that the public headers declare.
set -eu
test=$1
shift
declared=$(cat "$@" | tr '\n' ' ' | grep -oE 'ATOLL_EXPORT [^;]*' | grep -v '(void)' |
  grep -oE 'Atoll[A-Za-z]+\(' | sort -u)
for call in $declared; do
  grep -qF "$call" "$test" || { echo "$test never calls $call...)"; exit 1; }
done
echo "all $(echo "$declared" | wc -l) functions are called."
