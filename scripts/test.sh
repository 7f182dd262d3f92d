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
log=$(mktemp) prepared=$(mktemp) crossed=$(mktemp) installed=$(mktemp)
crossing=
finish() {
  # With its children.
  [[ -z $crossing ]] || kill -- -"$crossing" 2>/dev/null || true
  rm -f "$log" "$prepared" "$crossed" "$installed"
}
trap finish EXIT
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

# Programs and libraries that tests need: packages, versions of Python and Ruby, ART, and tools for Mach-O.
prepare() {
  local failed=0
  scripts/install-test-packages.sh || failed=1
  echo yes >"$installed"
  [[ $mode == unit ]] && return $failed
  scripts/install-pythons.sh target/pythons || failed=1
  scripts/install-rubies.sh target/rubies || failed=1
  scripts/install-art.sh target/art || failed=1
  scripts/install-kotlin.sh target/kotlin || failed=1
  scripts/install-apple-tools.sh target/apple-tools || failed=1
  scripts/install-fishhook.sh target/fishhook || failed=1
  return $failed
}
# await PROCESS FILE: waits for what runs beside, and shows what it said.
await() {
  local status=0
  wait "$1" || status=1
  cat "$2"
  return $status
}

# The API that does nothing. Its example is only checked: tests run the one that was built to record.
no_op() {
  cargo test -p stackbeat-api --features noop --locked --lib &&
    cargo check -p stackbeat-api --features noop --locked --example session
}

# Compilers for the other platforms take what everything else leaves of the processors. Packages are installed by one at
# a time.
cross() {
  until [[ -s $installed ]]; do sleep 1; done
  exec chrt --idle 0 scripts/cross/cross-check.sh build arm64
}

# It mostly waits for the network, and the build needs nothing of it.
prepare >"$prepared" 2>&1 &
preparing=$!
if [[ $mode == all ]]; then
  set -m
  cross >"$crossed" 2>&1 &
  crossing=$!
  set +m
fi
# Benchmarks are only built.
built=("${selected[@]}")
[[ $mode == unit ]] || built+=(--all-targets)
run "build: $mode" cargo test --workspace --locked --no-run "${built[@]}"
run "programs that tests need" await "$preparing" "$prepared"
run "tests of cargo's: $mode" cargo test --workspace --locked --no-fail-fast "${selected[@]}"
if [[ $mode != unit ]]; then
  run "the no-op build of the API" no_op
fi
if [[ $mode == all ]]; then
  run "models of the shared protocols, every interleaving" scripts/loom.sh
  run "Java under captures in each hook, two minutes" scripts/art-stress.sh 120
  run "Android, Apple and arm64 Linux: build" await "$crossing" "$crossed"
  run "Android, Apple and arm64 Linux: run" scripts/cross/cross-check.sh run arm64
fi
for title in "${broken[@]}"; do echo "failed: $title"; done
# What failed tests said stands far above: once more, where the end is all that somebody sees.
((${#broken[@]} == 0)) || awk '/ panicked at / { left = 6 } /^stack backtrace:/ { left = 0 } left-- > 0' "$log"

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
