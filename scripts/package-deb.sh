#!/bin/bash
# Builds a Debian package of the tool with its completions and manual page, unpacks it into a folder, and records with the
# program in there. Needs cargo-deb (`cargo install cargo-deb`); some minutes of CPU time.
#
#   scripts/package-deb.sh [FOLDER]     the package goes there, target/debian by default
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/debian}
most_bytes=10000000

cargo build --profile dist --locked --package stackbeat
binary=${CARGO_TARGET_DIR:-target}/dist/stackbeat
bytes=$(stat -c %s "$binary")
echo "$binary: $bytes bytes"
((bytes <= most_bytes)) || { echo "$binary is larger than $most_bytes bytes" >&2; exit 1; }

documents=target/documents
mkdir -p "$documents" "$folder"
"$binary" completions bash > "$documents/stackbeat.bash"
"$binary" completions zsh > "$documents/_stackbeat"
"$binary" completions fish > "$documents/stackbeat.fish"
"$binary" man > "$documents/stackbeat.1"
package=$(cargo deb --package stackbeat --profile dist --no-build --no-strip --output "$folder" | tail -1)

# As installed: nothing of this repository is at hand.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
dpkg-deb --info "$package"
dpkg-deb --extract "$package" "$root"
for file in usr/bin/stackbeat usr/share/man/man1/stackbeat.1.gz usr/share/bash-completion/completions/stackbeat \
  usr/share/zsh/vendor-completions/_stackbeat usr/share/fish/vendor_completions.d/stackbeat.fish; do
  [[ -s $root/$file ]] || { echo "$package has no $file" >&2; exit 1; }
done
bash -n "$root/usr/share/bash-completion/completions/stackbeat"
cd "$root"
stackbeat=$root/usr/bin/stackbeat
"$stackbeat" record --quiet -o true.beat -- true
"$stackbeat" info --check true.beat > /dev/null
"$stackbeat" report true.beat > /dev/null
echo "$package: its program records"
