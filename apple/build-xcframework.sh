#!/bin/bash
# Builds swift/StackbeatApp.xcframework on a Mac: the library for devices, for simulators and for macOS, each as a framework, with the
# header. Needs Xcode and rustup's targets aarch64-apple-ios, aarch64-apple-ios-sim, aarch64-apple-darwin and x86_64-apple-darwin.
set -euo pipefail
cd "$(dirname "$0")"
name=StackbeatApp
out=$PWD/swift/$name.xcframework
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# library TARGET: builds it, and prints where it is. It stays a library of its own: rebinding leaves its own image alone.
library() {
  cargo build --quiet --profile agent -p stackbeat-apple --target "$1" >&2
  echo "../target/$1/agent/libstackbeat_apple_app.dylib"
}

# framework PLATFORM LIBRARY…: one framework of the libraries for all its processors.
framework() {
  local folder=$work/$1/$name.framework; shift
  mkdir -p "$folder/Headers" "$folder/Modules"
  lipo -create "$@" -output "$folder/$name"
  install_name_tool -id "@rpath/$name.framework/$name" "$folder/$name"
  cp include/stackbeat_app.h ../api/include/stackbeat.h "$folder/Headers"
  printf 'framework module %s {\n    header "stackbeat_app.h"\n    export *\n}\n' $name > "$folder/Modules/module.modulemap"
  cat > "$folder/Info.plist" <<PLIST
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict>
  <key>CFBundleExecutable</key><string>$name</string>
  <key>CFBundleIdentifier</key><string>dev.stackbeat.$name</string>
  <key>CFBundleName</key><string>$name</string>
  <key>CFBundlePackageType</key><string>FMWK</string>
  <key>CFBundleShortVersionString</key><string>0.1.0</string>
  <key>CFBundleVersion</key><string>1</string>
  <key>MinimumOSVersion</key><string>14.0</string>
</dict></plist>
PLIST
  # What changes a library's name breaks its signature; Xcode signs anew when it embeds it.
  codesign --force --sign - "$folder"
}

ios=$(library aarch64-apple-ios)
simulator=$(library aarch64-apple-ios-sim)
mac=$(library aarch64-apple-darwin)
intel=$(library x86_64-apple-darwin)
framework ios "$ios"
framework simulator "$simulator"
framework macos "$mac" "$intel"
rm -rf "$out"
xcodebuild -create-xcframework -output "$out" \
  -framework "$work/ios/$name.framework" -framework "$work/simulator/$name.framework" -framework "$work/macos/$name.framework"
