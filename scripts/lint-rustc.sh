#!/bin/sh
# Stands for rustc where the workspace's own crates are compiled (RUSTC_WORKSPACE_WRAPPER), so that what is built is
# linted by the way. A lint is an error. The first argument is rustc.
exec clippy-driver "$@" -D warnings
