#!/bin/sh
# Makes docs/images/flamegraph.svg anew from a recording of docs/images/orders.pl, and prints the report that the README
# shows shortened. Needs perl and a built stackbeat (STACKBEAT, target/release/stackbeat by default).
set -eu
cd "$(dirname "$0")/.."
stackbeat=$(realpath "${STACKBEAT:-target/release/stackbeat}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$stackbeat" record --quiet -o "$work/perl.beat" -- perl docs/images/orders.pl "$work/orders.csv"
COLUMNS=110 "$stackbeat" report "$work/perl.beat" --top 6
# How perl loads its modules is left out, because those stacks are deep.
"$stackbeat" export "$work/perl.beat" --from 40ms --to flamegraph-svg --title 'perl orders.pl' \
  -o docs/images/flamegraph.svg --force
