#!/bin/bash
# Lints what runs inside programs and apps for Android, iOS, macOS and arm64 Linux, links it, and runs
# core's tests under arm64 emulation. Nothing but Debian's packages is needed (run as root to install them).
#
#   scripts/cross/cross-check.sh [check|link|build|run|all] [arm64|every]     default: all every
#
# check   lints alone, of the portable packages for each target, and of the tool for a Mac
# link    links core and api for Android and Apple, with Android's hooks, and the library that an app loads, and compares what they
#         ask of the platform, and what that library offers, with the lists in imports/; lints the tool for a Mac
# build   links, and builds what `run` runs; all that is built is linted
# run     core's tests and a recorded program on arm64 Linux under qemu-user, whose processor signs return addresses
# arm64   phones and Macs with that processor only, as the test command does; every: Intel's and the iOS simulator, too
#
# The toolchain is Debian's, because its std comes as source that can be built for any target. Whoever has
# the NDK or Xcode builds with the ordinary toolchain:
#   cargo ndk -t arm64-v8a build -p stackbeat-core     cargo build -p stackbeat-core --target aarch64-apple-ios
set -euo pipefail
MODE=${1:-all} TARGETS=${2:-every}
HERE=$(cd "$(dirname "$0")" && pwd)
cd "$HERE/../.."
S=${CROSS_DIR:-$PWD/target/cross}
mkdir -p "$S"
PHONE=aarch64-linux-android
case $TARGETS in
  arm64) ANDROID=$PHONE APPLE="aarch64-apple-ios aarch64-apple-darwin" MACS=aarch64-apple-darwin ;;
  every)
    ANDROID="$PHONE x86_64-linux-android"
    APPLE="aarch64-apple-ios aarch64-apple-ios-sim aarch64-apple-darwin x86_64-apple-darwin"
    # Where somebody records and looks at an app: the tool, without what records programs of its own machine.
    MACS="aarch64-apple-darwin x86_64-apple-darwin"
    ;;
  *) echo "cross-check.sh: arm64 or every, not $TARGETS" >&2; exit 2 ;;
esac
CROSS="$ANDROID $APPLE"
ARM64_LINUX=aarch64-unknown-linux-gnu
# What an app carries: all of a session, its start inside the app so far on Android only.
PORTABLE="-p stackbeat-core -p stackbeat-proto -p stackbeat-symbolize -p stackbeat-model -p stackbeat-collector -p stackbeat-api
  -p stackbeat-embedded"

# Android's hooks, and the library that an app loads.
ANDROID_HOOKS="-p stackbeat-hooks-android -p shadowhook-sys"
ANDROID_APP="-p stackbeat-android-app"

# What of that runs on the program's own threads: what it may ask the platform for is on a list.
ON_THREADS="-p stackbeat-core -p stackbeat-api"

# An app's hooks on Apple's systems, and the library with them.
ON_APPLE="-p stackbeat-hooks-apple -p stackbeat-apple $(printf -- '--target %s ' $APPLE)"

# With the time that it took, and its CPU time.
step() {
  local TIMEFORMAT="cross: %0R s, CPU %0U + %0S s: ${*:1:6} …"
  time "$@"
}

install_packages() {
  local packages="cargo-web rustc-web rust-web-clippy rust-web-src libstd-rust-web-dev"
  packages+=" gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static lld-14 llvm-14"
  dpkg -s $packages >/dev/null 2>&1 && return
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages </dev/null >/dev/null
}
step install_packages

# Debian's tools, not rustup's shims.
unset RUSTC RUSTC_WORKSPACE_WRAPPER RUSTUP_TOOLCHAIN RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET RUSTC_BOOTSTRAP
export PATH=/usr/bin:/bin CARGO_TARGET_DIR=$S/target
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=none

# What the workspace optimizes for its tests is not run here, or for moments.
LEVELS=()
for package in $(sed -n '/^\[profile.dev.package\]/,/^$/s/\.opt-level.*//p' Cargo.toml); do
  LEVELS+=(--config "profile.dev.package.$package.opt-level=0")
done
cargo() { command cargo "${LEVELS[@]}" "$@"; }

# std for the foreign targets, once per version of Debian's toolchain. Unstable features are allowed for
# this build only.
VERSION=$(dpkg-query -W -f '${Version}' rust-web-src)
SYSROOT=$S/sysroot-$VERSION
missing_std() {
  local target
  for target in $CROSS; do [[ -e $SYSROOT/lib/rustlib/$target/lib/ok ]] || printf '%s ' "$target"; done
}
build_std() {
  local targets; targets=$(printf -- '--target %s ' "$@")
  # A program that takes the place of the linker: libstd.so is not wanted.
  printf '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; : > "$2"\n' > "$S/null-cc"
  chmod +x "$S/null-cc"
  RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zforce-unstable-if-unmarked --cap-lints=allow -Clinker=$S/null-cc" \
    CARGO_TARGET_DIR=$S/std command cargo build -q --locked --features panic-unwind,backtrace $targets \
    --manifest-path /usr/lib/rustlib/src/rust/library/sysroot/Cargo.toml
  local target directory
  for target in "$@"; do
    directory=$SYSROOT/lib/rustlib/$target/lib
    mkdir -p "$directory"
    cp "$S/std/$target"/debug/deps/*.rlib "$directory"
    touch "$directory/ok"
  done
  rm -rf "$S/std"
}
MISSING=$(missing_std)
[[ -z $MISSING ]] || step build_std $MISSING
for target in $CROSS; do
  name=${target^^}
  # What the lints find here no other target shows.
  declare -x "CARGO_TARGET_${name//-/_}_RUSTFLAGS=--sysroot=$SYSROOT -Dwarnings"
  declare -x "CARGO_TARGET_${name//-/_}_LINKER=$HERE/lld-cc.sh"
done

# std for arm64 Linux is prebuilt: Debian's arm64 package is unpacked, not installed.
unpack_arm64_std() {
  if [[ ! -e $S/arm64/$VERSION ]]; then
    local options="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status=/dev/null"
    options+=" -o Dir::State::lists=$S/lists -o Dir::Cache=$S/lists"
    rm -rf "$S/lists" "$S/arm64"
    mkdir -p "$S/lists/partial" "$S/arm64"
    apt-get -qq $options update
    (cd "$S/arm64" && apt-get -qq $options download "libstd-rust-web-dev=$VERSION" && dpkg -x ./*.deb . && rm ./*.deb)
    touch "$S/arm64/$VERSION"
    rm -rf "$S/lists"
  fi
  ln -sfn "$S/arm64/usr/lib/rustlib/$ARM64_LINUX" /usr/lib/rustlib/$ARM64_LINUX
}
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# The agent has two lists of exports, which GNU's linker does not take.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-Clink-arg=-fuse-ld=lld -Clink-arg=-B/usr/lib/llvm-14/bin"
export EMULATOR="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
# No binary takes a third of this.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/scripts/test-limit.sh 600 $EMULATOR"
# Runs tests under emulation. A child that was forked there has hung once where it takes no lock, which is laid to
# qemu 7.2's fork beside its other threads: a binary that did not end is shown and has one more try.
emulated() {
  local log=$S/emulated.log
  "$@" 2>&1 | tee "$log" && return
  grep -q '^== no end after' "$log" || return 1
  echo "== once more: ${*:1:6} …"
  "$@"
}

# By its own name: as `cargo clippy` it would be the one of ~/.cargo/bin, of another compiler.
lint() { cargo-clippy clippy -q --locked "${LEVELS[@]}" "$@"; }

unpack_arm64_std
if [[ $MODE = check ]]; then
  step lint --keep-going $PORTABLE $(printf -- '--target %s ' $CROSS $ARM64_LINUX)
  step lint -p stackbeat-hooks-linux --target $ARM64_LINUX
  step lint $ANDROID_HOOKS $(printf -- '--target %s ' $ANDROID $ARM64_LINUX)
  step lint $ANDROID_APP $(printf -- '--target %s ' $ANDROID)
  step lint $ON_APPLE
  step lint -p stackbeat $(printf -- '--target %s ' $MACS)
else
  # What is built is linted by the way: apart, all that it depends on would be compiled once more for it.
  export RUSTC_WORKSPACE_WRAPPER=/usr/bin/clippy-driver
fi
if [[ $MODE = build || $MODE = all ]]; then
  step cargo build -q --locked $PORTABLE --target $ARM64_LINUX
fi
if [[ $MODE = link || $MODE = build || $MODE = all ]]; then
  step cargo build -q --locked $ON_THREADS $(printf -- '--target %s ' $CROSS)
  # rustc asks Xcode for a folder of libraries, unless it has one.
  LINK_ROOTS=/dev/null SDKROOT=$S step cargo build -q --locked $ON_APPLE
  # Linked, it would show no more: what it asks of the platform is on no list, and here names stay undefined (lld-cc.sh).
  step lint -p stackbeat $(printf -- '--target %s ' $MACS)
  # Everything that it has is reached from its exports.
  LINK_ROOTS=/dev/null step cargo build -q --locked -p stackbeat-embedded --target $PHONE
  step cargo build -q --locked -p stackbeat-hooks-android $(printf -- '--target %s ' $ANDROID)
  LINK_ROOTS=/dev/null step cargo build -q --locked $ANDROID_APP $(printf -- '--target %s ' $ANDROID)
  for target in $CROSS; do
    step scripts/cross/imports.sh "$target" "$CARGO_TARGET_DIR/$target/debug" "$SYSROOT"
  done
fi
# Tests of system calls that user-mode emulation does not have: mremap that maps again, seccomp filters, process_vm_readv.
# And one that forks beside other threads, whose locks in the emulator the child may wait for without end.
NOT_EMULATED="mapping::pieces::tests::pieces_are_mapped_from_those_before sandbox::tests::the_kernel_says_the_same
  mapping::share::tests::a_process_maps_what_has_storage_and_more_when_threads_begin
  mapping::share::tests::memory_without_a_file_is_joined_and_grows_in_its_own_process
  mapping::methods::tests::a_process_maps_the_table_when_it_needs_it methods::tests::processes_get_the_same_numbers
  generated_code::elsewhere::tests::from_outside_it_is_what_it_is_inside
  sandbox::tests::a_child_that_is_noticed_inside_of_a_call_has_none_under_way_after_it"
# Tests that become part of a session: emulation cannot start them again, so each has a process from the start.
ALONE="agent::a_session_in_this_process attach_detach::sessions_come_and_go
  posix::a_table_of_functions_tells_what_is_called"
# Only what signs pointers is compiled with these instructions.
signed_test() {
  RUSTC_WORKSPACE_WRAPPER=$HERE/signing-rustc.sh \
    cargo test -q --locked -p stackbeat-hooks-apple --test main --target $ARM64_LINUX "$@"
}
build_tests() {
  cargo build -q --locked -p stackbeat-hooks-linux --target $ARM64_LINUX
  cargo test -q --locked --no-run -p stackbeat-core --lib --test main --target $ARM64_LINUX
  cargo test -q --locked --no-run -p stackbeat-hooks-android --test main --target $ARM64_LINUX
  cargo test -q --locked --no-run -p stackbeat-hooks-apple --test main --target $ARM64_LINUX
  signed_test --no-run
}
run_core() {
  local name
  export STACKBEAT_AGENT=$CARGO_TARGET_DIR/$ARM64_LINUX/debug/libstackbeat.so
  for name in $ALONE; do
    emulated cargo test -q --locked -p stackbeat-core --test main --target $ARM64_LINUX -- --exact "$name"
  done
  emulated cargo test -q --locked -p stackbeat-core --test main --target $ARM64_LINUX -- $(printf -- '--skip %s ' $ALONE)
  emulated cargo test -q --locked -p stackbeat-core --test main --target $ARM64_LINUX -- --ignored emulated
  # Hooks of bionic's calls, in slots of a library that glibc's linker has loaded.
  CC=aarch64-linux-gnu-gcc STACKBEAT_TEST_ALONE=1 emulated cargo test -q --locked -p stackbeat-hooks-android --target $ARM64_LINUX \
    --test main -- bionic
  # Signals come between any two instructions, not only where a block of code ends.
  QEMU_SINGLESTEP=1 emulated cargo test -q --locked -p stackbeat-core --test main --target $ARM64_LINUX -- frame_pointers
  # The same code where signing does nothing.
  QEMU_CPU=cortex-a57 emulated cargo test -q --locked -p stackbeat-core --test main --target $ARM64_LINUX -- frame_pointers
}
# Code of images for arm64 macOS calls hooks. With signed pointers they are built as for arm64e.
run_apple() {
  local test="emulated cargo test -q --locked -p stackbeat-hooks-apple --test main --target $ARM64_LINUX --"
  $test code_of_an_image every_slot a_slot_that
  $test --exact posix::calls_of_an_image_are_recorded
  $test --exact system::calls_become_waits_flows_and_iterations_in_a_trace
  emulated signed_test -- hooks_in_signed_slots
}
[[ $MODE = check || $MODE = link ]] || step build_tests
if [[ $MODE = run || $MODE = all ]]; then
  export QEMU_CPU=max
  step emulated cargo test -q --locked -p stackbeat-core --lib --target $ARM64_LINUX -- $(printf -- '--skip %s ' $NOT_EMULATED)
  step run_core
  step run_apple
fi
echo "cross: $MODE passed"
