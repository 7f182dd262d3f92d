#!/bin/sh
# Checks the models of the shared protocols (core/tests/loom.rs) in every interleaving up to a number of preemptions.
set -eu
cd "$(dirname "$0")/.."
# Parts that the models have no use for are not linted.
unset RUSTC_WORKSPACE_WRAPPER
# They run for a second: what is optimized takes longer to compile than it saves, but for what runs in each of the
# interleavings. Without that, a model's branches are too many for its stack.
RUSTFLAGS="--cfg loom ${RUSTFLAGS:-}" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" CARGO_PROFILE_DEV_DEBUG=0 \
  cargo test -p stackbeat-core --test main --config profile.dev.opt-level=0 \
  $(printf -- '--config profile.dev.package.%s.opt-level=1 ' stackbeat-core loom generator) "$@"
