#!/bin/sh
# Checks the models of the shared protocols (core/tests/loom.rs) in every interleaving up to a number of preemptions.
set -eu
cd "$(dirname "$0")/.."
# Parts that the models have no use for are not linted.
unset RUSTC_WORKSPACE_WRAPPER
RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
  cargo test --release -p stackbeat-core --test main "$@"
