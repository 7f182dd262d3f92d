#!/bin/bash
# Fetches ShadowHook's AAR by Maven and unpacks it: its header and its libraries for arm and arm64.
#
#   fetch-shadowhook.sh FOLDER     prints the folder of the version; does nothing when it is there
set -euo pipefail
version=1.0.6
folder=$1/shadowhook-$version
mkdir -p "$1"
# One at a time: several tests ask for it.
exec {lock}>"$1/shadowhook.lock"
flock "$lock"
if [[ ! -e $folder/complete ]]; then
  mkdir -p "$folder"
  mvn -q -B dependency:copy -Dartifact=com.bytedance.android:shadowhook:$version:aar -DoutputDirectory="$folder" >&2
  unzip -qo "$folder/shadowhook-$version.aar" -d "$folder"
  touch "$folder/complete"
fi
echo "$folder"
