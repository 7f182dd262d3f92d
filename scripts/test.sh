#!/bin/bash
# The test command: everything that must hold before a change lands. About half an hour on two cores from
# a clean clone.
#
#   scripts/test.sh          all
#   scripts/test.sh quick    only cargo's tests: no other targets, model checking or crash runs
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-all}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

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

run "packages that tests need" scripts/install-test-packages.sh
run "unit, integration and end-to-end tests" cargo test --workspace --locked --no-fail-fast
run "the no-op build of the API" cargo test -p stackbeat-api --features noop --locked
if [[ $mode == all ]]; then
  run "models of the shared protocols, every interleaving" scripts/loom.sh
  run "Android, Apple and arm64 Linux" scripts/cross/cross-check.sh
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
  exit failed + broken > 0
}' "$log"
