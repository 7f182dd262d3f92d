#!/bin/bash
# Sessions inside programs, for longer than the tests: kills that the next start saves, and threads that are stopped at random while
# they are in malloc. 100 kills take about two minutes on two cores, 100,000 stops about ten.
#
#   scripts/in-process-test.sh [KILLS] [STOPS]
set -euo pipefail
cd "$(dirname "$0")/.."
export STACKBEAT_TEST_KILLS=${1:-100}
export STACKBEAT_TEST_SUSPENSIONS=${2:-100000}
exec cargo test --locked -p stackbeat-tests --test main -- --nocapture \
    in_process::what_a_killed_one in_process::threads_that_are_stopped
