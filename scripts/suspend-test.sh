#!/bin/bash
# Suspends threads at random moments while they allocate, from a thread of the same process. What runs while one is suspended may
# neither allocate nor write nor wait for a lock: the test ends then. A million times take some minutes on two cores.
#
#   scripts/suspend-test.sh [TIMES | SECONDSs]
set -euo pipefail
cd "$(dirname "$0")/.."
export STACKBEAT_SUSPENSIONS=${1:-1000000}
exec cargo test --locked -p stackbeat-collector --lib sampler::tests -- --nocapture
