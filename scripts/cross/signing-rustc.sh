#!/bin/sh
# Stands for rustc where the hooks for Apple's systems and their tests are built with signed pointers
# (RUSTC_WORKSPACE_WRAPPER). As RUSTFLAGS the flags would be those of all dependencies, which would be compiled once more.
# The first argument is rustc. Other crates have been linted without the flags.
case "$*" in
  *"--crate-name stackbeat_apple "* | *"--crate-name main "*) exec clippy-driver "$@" -Ctarget-feature=+paca,+pacg ;;
  *) exec "$@" ;;
esac
