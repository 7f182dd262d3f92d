#!/bin/bash
# Kills the program or the collector at random moments under 16 writing threads, recovers, and counts:
# written = recovered + declared lost. 10,000 kills take about half an hour on two cores.
#
#   scripts/crash-test.sh [KILLS] [SEED]
set -euo pipefail
cd "$(dirname "$0")/.."
export STACKBEAT_CRASHES=${1:-10000}
if [[ $# -ge 2 ]]; then export STACKBEAT_CRASH_SEED=$2; fi
exec cargo test --locked -p stackbeat-collector --test main crash:: -- --nocapture
