#!/bin/bash
# Suspends threads at random moments while they allocate, from threads of the same process. What runs while one is suspended may
# neither allocate nor write nor wait for a lock: the test ends then. A million times take some minutes on two cores. What stands in
# for Mach's calls is slow, and gets 30 s.
#
#   scripts/suspend-test.sh [TIMES | SECONDSs]
set -euo pipefail
cd "$(dirname "$0")/.."
run() {
  STACKBEAT_SUSPENSIONS=$1 cargo test --locked -p stackbeat-collector --lib "sampler::tests::$2" -- --nocapture
}
run "${1:-1000000}" threads_are_suspended_while
run 30s threads_are_suspended_by_mach
run 3s the_tripwire
