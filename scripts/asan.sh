#!/bin/sh
# Core's unit tests under AddressSanitizer: the shared mapping, records, modules, frames of runtimes. Needs a nightly toolchain.
# Left out are two tests that run on stacks which the sanitizer does not know.
set -eu
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
# The fault guard catches faults itself. Memory of the agent is never given back, so leaks are not looked for.
export ASAN_OPTIONS="detect_leaks=0:handle_segv=0:handle_sigbus=0"
export RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/asan"
cargo +nightly test --locked --target "$target" -p stackbeat-core --lib -- \
  --skip own_stack::tests --skip a_handler_on_the_alternate_stack "$@"
