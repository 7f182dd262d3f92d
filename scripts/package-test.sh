#!/bin/bash
# Packages every crate as for publishing, then installs the tool from the packages alone, far from this repository and
# without a network, and records two programs with it. Six minutes of CPU time.
#
#   scripts/package-test.sh [--allow-dirty]
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
# Cargo verifies each package with those before it, and keeps what it has unpacked and built of them by name and version. So
# each run builds in a folder of its own: another one's would be verified with the sources of the first run there.
export CARGO_TARGET_DIR=$work/target
packages=$CARGO_TARGET_DIR/package
trap 'rm -rf "$work" "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/stackbeat*' EXIT

step() { echo "== $SECONDS s: $*"; }

step "cargo package"
cargo package --workspace --locked --quiet "$@"

# A registry that is a folder: the packages of others as cargo unpacks them, and ours beside them.
step "the registry"
cargo vendor --locked --quiet "$work/registry" > /dev/null
for package in "$packages"/*.crate; do
  name=$(basename "$package" .crate)
  tar -xzf "$package" -C "$work/registry"
  sum=$(sha256sum < "$package")
  echo "{\"files\": {}, \"package\": \"${sum%% *}\"}" > "$work/registry/$name/.cargo-checksum.json"
done
mkdir "$work/home"
cat > "$work/home/config.toml" << EOF
[source.crates-io]
replace-with = "packages"
[source.packages]
directory = "$work/registry"
[net]
offline = true
EOF

step "cargo install"
cd "$work"
CARGO_HOME=$work/home cargo install --locked --quiet --root "$work" stackbeat
rm -rf "$work/registry" "$CARGO_TARGET_DIR"

step "recordings"
stackbeat=$work/bin/stackbeat
"$stackbeat" record -o true.beat -- true
[[ $("$stackbeat" record -o python.beat -- python3 -c 'print(1)') == 1 ]]
for trace in true.beat python.beat; do
  "$stackbeat" info --check "$trace" > /dev/null
  "$stackbeat" report "$trace" > /dev/null
done
"$stackbeat" doctor > doctor.txt || { cat doctor.txt; exit 1; }
step "the installed tool records"
