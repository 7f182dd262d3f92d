#!/bin/bash
# The test command: everything that must hold before a change lands. About half an hour on two cores from
# a clean clone.
#
#   scripts/test.sh                all
#   scripts/test.sh unit           only unit tests: less than two minutes once built
#   scripts/test.sh integration    these, and what each crate's tests/ has: no recordings of real programs
#   scripts/test.sh quick          all of cargo's tests: no other targets or model checking
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-all}
log=$(mktemp) beside=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$log" "$beside"' EXIT
case $mode in
  unit) selected=(--lib --bins) ;;
  integration) selected=(--exclude stackbeat-tests) ;;
  quick | all) selected=() ;;
  *) echo "test.sh: unit, integration, quick or all, not $mode" >&2; exit 2 ;;
esac
# A test binary that takes longer, in seconds, is ended and has failed. All recordings of real programs are one binary.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="scripts/test-limit.sh 2700"
# The programs that tests run are built with all tests: none builds them again (`tests/src/lib.rs`).
export STACKBEAT_TESTS_BUILT=1
# What a second build would reuse takes a third of the disk that a build takes.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

broken=()
# run TITLE COMMAND…: goes on after a failure, so that one run shows all that is wrong.
run() {
  local title=$1 begin=$SECONDS
  shift
  echo "== $title"
  exec {output}> >(tee -a "$log")
  local reader=$!
  "$@" >&"$output" 2>&1 || broken+=("$title")
  exec {output}>&-
  # A process that a failed test left behind may hold the pipe: what it prints is not waited for.
  for _ in {1..50}; do kill -0 "$reader" 2>/dev/null || break; sleep 0.1; done
  echo "== $((SECONDS - begin)) s"
}

# start NAME COMMAND…: runs it beside what follows, with what that leaves of the processors. `run TITLE finish NAME` waits
# for it, shows what it printed, and has its status.
declare -A started=()
start() {
  local name=$1
  shift
  nice -n 19 "$@" >"$beside/$name" 2>&1 &
  started[$name]=$!
}
finish() {
  local status=0
  wait "${started[$1]}" || status=$?
  cat "$beside/$1"
  return $status
}

run "packages that tests need" scripts/install-test-packages.sh
[[ $mode == unit ]] || run "versions of Python" scripts/install-pythons.sh target/pythons
[[ $mode == unit ]] || run "ART" scripts/install-art.sh target/art
[[ $mode == unit ]] || run "tools for Mach-O" scripts/install-apple-tools.sh target/apple-tools
run "build: $mode" cargo test --workspace --locked --no-run "${selected[@]}"
# Recordings wait for half of their time, and these compute.
if [[ $mode == all ]]; then
  start cross scripts/cross/cross-check.sh
  start loom scripts/loom.sh
fi
run "tests of cargo's: $mode" cargo test --workspace --locked --no-fail-fast "${selected[@]}"
if [[ $mode != unit ]]; then
  run "the no-op build of the API" cargo test -p stackbeat-api --features noop --locked
fi
if [[ $mode == all ]]; then
  run "models of the shared protocols, every interleaving" finish loom
  run "Android, Apple and arm64 Linux" finish cross
fi
for title in "${broken[@]}"; do echo "failed: $title"; done

# One line for all runs together, last, in the form that cargo uses.
awk -v broken=${#broken[@]} '/^test result: / {
  gsub(/[;.]/, " ")
  for (i = 1; i < NF; i++) {
    if ($(i + 1) == "passed") passed += $i
    if ($(i + 1) == "failed") failed += $i
    if ($(i + 1) == "ignored") ignored += $i
  }
}
END {
  printf "test result: %s. %d passed; %d failed; %d ignored; 0 measured; 0 filtered out\n",
    failed + broken ? "FAILED" : "ok", passed, failed, ignored
  exit failed + broken != 0
}' "$log"
