#!/bin/bash
# Builds real ARTs that run in a Linux process, from Debian packages and Maven artifacts (README.md).
#
#   scripts/art/setup.sh FOLDER [11] [14]
#
# Finished steps are skipped: a step's stamp lies in FOLDER/.done. Needs apt (Debian), mvn, JDK 17, g++, tar and
# dpkg-deb. Nothing is installed on the machine, and root is not needed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n 2,7p "$0"; exit 2; }
mkdir -p "$1"; dir=$(cd "$1" && pwd); shift
versions=${*:-11 14}
declare -A suite=([11]=bookworm [14]=trixie)
t0=$SECONDS
mkdir -p "$dir"/{.done,dl,build}
log() { echo "[$((SECONDS - t0)) s] $*"; }
step() { # step NAME FILES... -- COMMAND: skipped when done and no FILE is newer
  local n=$1 f; shift; local stamp=$dir/.done/$n
  local redo=0; [ -e "$stamp" ] || redo=1
  while [ "$1" != -- ]; do for f in $1; do [ "$f" -nt "$stamp" ] && redo=1; done; shift; done; shift
  [ $redo = 1 ] || return 0
  log "$n"; "$@"; touch "$stamp"
}

# ---- packages: a private apt state; the archive's address comes from the machine's own configuration ----
apt=$dir/dl/apt
opts=(-q -o Dir::State="$apt/state" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
  -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User="$(id -un)")
apt_update() {
  mkdir -p "$apt"/state/lists/partial "$apt"/cache/archives/partial; touch "$apt/status"
  local uri key
  uri=$(apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL)' 2>/dev/null |
    awk '$3 == "Debian" {print $1; exit}')
  [ -n "$uri" ] || uri=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{sources,list} 2>/dev/null |
    awk '/^URIs:/ {print $2; exit}
      /^deb / {for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) {print $i; exit}}')
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  : > "$apt/sources.list"
  for s in bookworm trixie; do
    [[ $s = trixie && " $versions " != *" 14 "* ]] || echo "deb [signed-by=$key] $uri $s main" >> "$apt/sources.list"
  done
  echo "deb-src [signed-by=$key] $uri bookworm main" >> "$apt/sources.list"
  apt-get "${opts[@]}" update > "$apt/log" 2>&1 || { sed 's#//[^/ ]*#//...#g' "$apt/log"; return 1; }
}
packages() { # packages VERSION
  local v=$1 list
  list="android-libart android-libbase android-libbacktrace android-liblog android-libziparchive"
  list+=" android-libnativebridge android-libnativeloader android-libnativehelper liblz4-1 zlib1g"
  [ "$v" != 11 ] || list+=" p7zip-full"
  [ "$v" != 14 ] || list+=" 7zip libtinyxml2-11 libcap2 libc6 libstdc++6 libgcc-s1"
  rm -rf "$dir/$v/deb" "$dir/$v/lib"
  mkdir -p "$dir/dl/deb$v" "$dir/$v"/{deb,lib,root,data}
  (cd "$dir/dl/deb$v" && rm -f ./*.deb && for p in $list; do
    apt-get "${opts[@]}" download "$p/${suite[$v]}" >> "$apt/log" 2>&1 ||
      { echo "no package $p in ${suite[$v]}"; exit 1; }
  done)
  for d in "$dir/dl/deb$v"/*.deb; do dpkg-deb -x "$d" "$dir/$v/deb"; done
  (cd "$dir/$v/deb" && find . \( -name '*.so' -o -name '*.so.*' \) -path '*lib*' ! -path '*/gconv/*' \
    ! -path '*/lib64/*' ! -path '*/gdb/*' -exec cp -a {} "$dir/$v/lib/" \;)
  rm -rf "$dir/$v/deb"
}
libcore_source() {
  rm -rf "$dir/build/libcore"; mkdir -p "$dir/build/libcore"
  (cd "$dir/dl" &&
    apt-get "${opts[@]}" source --download-only android-platform-libcore/bookworm >> "$apt/log" 2>&1)
  tar xf "$dir"/dl/android-platform-libcore_*.orig.tar.* -C "$dir/build/libcore"
}

# ---- Maven: dx, ASM, and the compiled framework (only a compile class path for android.icu and the like) ----
dx=com.jakewharton.android.repackaged:dalvik-dx:11.0.0_r3
asm=org.ow2.asm:asm-tree:9.7
all=org.robolectric:android-all:11-robolectric-6757853
artifact() {
  mvn -q -B -Dmaven.repo.local="$dir/dl/m2" dependency:get -Dartifact="$1" "${@:2}" > "$dir/dl/mvn.log" 2>&1 ||
    { tail -3 "$dir/dl/mvn.log" | sed 's#//[^/ ]*#//...#g'; return 1; }
}
maven() {
  artifact $dx && artifact $asm && artifact $all -Dtransitive=false || return 1
  rm -rf "$dir/lib"; mkdir -p "$dir/lib"
  find "$dir/dl/m2" \( -name 'dalvik-dx-*.jar' -o -path '*/org/ow2/asm/*.jar' \) -exec cp {} "$dir/lib/" \;
  mv "$(find "$dir/dl/m2" -name 'android-all-*.jar')" "$dir/build/android-all.jar"
}

# ---- core library: sources -> classes -> patched, lambdas out -> dex ----
java_=(nice java -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
javac_=(nice javac -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 -J-Xmx2g -proc:none -nowarn -g -encoding UTF-8
  -source 8 -target 8 -XDignore.symbol.file)
asmcp() { echo "$dir"/lib/asm*.jar | tr ' ' :; }
classes() {
  cd "$dir/build/libcore"
  sed -i 's/DecimalFormat_ICU58_Android/DecimalFormat/g' ojluni/src/main/java/java/text/DecimalFormat.java
  (cd "$here/core/common" && find . -name '*.java' | sed 's#^\./##') > ../over.txt
  find {ojluni,luni,libart,dalvik}/src/main/java -name '*.java' ! -name package-info.java ! -name module-info.java |
    grep -v -F -f ../over.txt -f "$here/core/exclude.txt" > ../files.txt
  find "$here/core/common" -name '*.java' >> ../files.txt
  rm -rf ../classes
  "${javac_[@]}" -bootclasspath /nonexistent -cp ../android-all.jar -d ../classes @../files.txt > ../javac.log 2>&1 ||
    { grep -A2 error: ../javac.log | head -20; return 1; }
}
core() { # core VERSION
  local v=$1 b=$dir/build
  rm -rf "$b/over$v" "$b/prep$v"; mkdir -p "$b/over$v"
  if [ -d "$here/core/$v" ]; then
    rm -rf "$b/gen$v"; mkdir -p "$b/gen$v/jdk/internal/math"
    # They have moved there since Android 10.
    local f; for f in FloatingDecimal FDBigInteger DoubleConsts FloatConsts; do
      sed 's/^package sun.misc;/package jdk.internal.math;/
        s/sun\.misc\.\(FDBig\|Double\|Float\)/jdk.internal.math.\1/g' \
        "$b/libcore/ojluni/src/main/java/sun/misc/$f.java" > "$b/gen$v/jdk/internal/math/$f.java"
    done
    find "$here/core/$v" "$b/gen$v" -name '*.java' > "$b/files$v.txt"
    "${javac_[@]}" -bootclasspath "$b/classes" -d "$b/over$v" @"$b/files$v.txt" > "$b/javac$v.log" 2>&1 ||
      { grep -A2 error: "$b/javac$v.log" | head -20; return 1; }
  fi
  cat "$here/patches/common.txt" "$here/patches/$v.txt" > "$b/patch$v.txt"
  "${java_[@]}" -cp "$(asmcp)" "$here/Prep.java" "$b/classes" "$b/prep$v" "$b/patch$v.txt" "$b/over$v"
  "${java_[@]}" -Xmx2500m -cp "$dir"/lib/dalvik-dx-*.jar com.android.dx.command.Main --dex --core-library \
    --min-sdk-version=28 --output="$dir/$v/core.jar" "$b/prep$v" > "$b/dx$v.log" 2>&1
  rm -rf "$b/prep$v"
}

# ---- native half, launcher ----
jni() {
  local j; j=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")/include
  echo "-I$j -I$j/linux"
}
natives() { # natives VERSION
  local v=$1 l s o=$dir/$1 libs
  for l in javacore openjdk icu_jni; do
    g++ -std=c++17 -O1 -g -fPIC -shared -w $([ $l = javacore ] && echo -DJAVACORE) $(jni) "$here/natives.cc" \
      -o "$o/lib/lib$l.so" -Wl,-soname,lib$l.so -ldl
  done
  # The Android libraries do not say what they need (libart names none of them) or look for it in /usr. The
  # launcher names it all, so that each is loaded, once, from its lib/ before libart is opened. It is linked
  # against empty stand-ins: only the names matter.
  libs="libsigchain.so.0 liblog.so.0 libbase.so.0 7z.so libbacktrace.so.0 libziparchive.so.0"
  libs+=" libnativebridge.so.0 libnativebridge.so libnativeloader.so.0 libnativehelper.so.0 liblz4.so.1 libz.so.1"
  [ "$v" != 14 ] || libs+=" libtinyxml2.so.11 libcpu_features.so.0 libcap.so.2"
  s=$dir/build/stub$v; rm -rf "$s"; mkdir -p "$s"
  for l in $libs; do gcc -shared -nostdlib -o "$s/$l" -Wl,-soname,"$l" -x c /dev/null; done
  g++ -std=c++17 -O1 -g -w $(jni) "$here/run-art.cc" -o "$o/run-art" -L"$s" -Wl,--no-as-needed \
    $(printf -- '-l:%s ' $libs) -ldl -Wl,--disable-new-dtags,-rpath,'$ORIGIN/lib' \
    $([ "$v" = 14 ] && echo "-Wl,--dynamic-linker=$o/lib/ld-linux-x86-64.so.2")
}
tools() {
  # dex-it: Java sources or class folders -> dex jar, with the rig's core library as boot class path
  cat > "$dir/dex-it" <<'X'
#!/bin/bash
# dex-it OUT.jar SOURCE.java...: compiles (Java 8) against the core library, takes lambdas out, makes dex
set -euo pipefail
d=$(cd "$(dirname "$0")" && pwd); out=$1; shift; t=$(mktemp -d); trap 'rm -rf "$t"' EXIT
mkdir "$t/c"
javac -source 8 -target 8 -g -nowarn -proc:none -Xlint:-options -bootclasspath "$d/build/classes" -d "$t/c" "$@" \
  2> "$t/log" || { cat "$t/log" >&2; exit 1; }
java -cp "$(echo "$d"/lib/asm*.jar | tr ' ' :)" "$d/lib/Prep.java" "$t/c" "$t/p" 2> /dev/null
java -cp "$d"/lib/dalvik-dx-*.jar com.android.dx.command.Main --dex --min-sdk-version=28 --output="$out" "$t/p"
X
  chmod +x "$dir/dex-it"; cp "$here/Prep.java" "$dir/lib/"
}

step apt-$(echo $versions | tr ' ' -) -- apt_update
for v in $versions; do step packages-$v -- packages $v; done
step libcore-source -- libcore_source
step maven -- maven
step classes "$here/core/exclude.txt" "$here/core/common/*/*/*.java" "$here/core/common/*/*/*/*.java" -- classes
for v in $versions; do
  step core-$v "$dir/.done/classes" "$here/Prep.java" "$here/patches/*.txt" "$here/core/$v/*/*/*.java" "$here/core/$v/*/*/*/*.java" -- core $v
  step natives-$v "$dir/.done/packages-$v" "$here/natives.cc" "$here/run-art.cc" -- natives $v
done
step tools "$here/Prep.java" "$here/setup.sh" "$dir/.done/classes" -- tools
log "done: $dir ($(du -sh "$dir" | cut -f1))"
