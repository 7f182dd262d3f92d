#!/usr/bin/env python3
"""What a recording inside an app takes of memory, and how long writes into its mapping are held up by the disk. Prints the tables of
docs/measurements/android.md.

  benches/android_memory.py [SECONDS [FOLDER]]        20 s for each row of stalls, in a folder on the disk (the current one)
"""
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "target/debug/libstackbeat_app.so"
# How the file is written out: by the kernel alone, often, and beside somebody who writes much. Milliseconds, MiB.
WAYS = {"by the kernel alone": (0, 0), "written out each 500 ms": (500, 0), "beside 64 MiB that are written and synced": (500, 64)}
# A part of a process' memory in /proc/PID/smaps: its first line.
PART = re.compile(r"^[0-9a-f]+-[0-9a-f]+ .*?(/\S.*)?$")


def memory(pid, folder):
    """KiB of the mapping: mapped, and in memory. None where the process has ended."""
    size = resident = 0
    is_mapping = False
    try:
        text = (Path("/proc") / str(pid) / "smaps").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if PART.match(line):
            is_mapping = str(folder) in line
        elif is_mapping and name in ("Size", "Rss"):
            kib = int(value.split()[0])
            size, resident = (size + kib, resident) if name == "Size" else (size, resident + kib)
    return size, resident


def measure_memory(version, folder):
    """The same at its largest, while the app of the tests allocates in a thread and two wait for each other."""
    app = Path(folder) / "app.jar"
    sources = ["tests/tests/art/app/App.java", "hooks-android/aar/stackbeat/src/main/java/dev/stackbeat/Native.java"]
    subprocess.run([ROOT / "target/art/dex-it", app, *sources], cwd=ROOT, check=True)
    traces = Path(folder) / f"traces{version}"
    traces.mkdir()
    process = subprocess.Popen(
        [ROOT / f"target/art/{version}/run-art", app, "dev.stackbeat.App", "records", LIBRARY, traces],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = (0, 0)
    while process.poll() is None:
        most = tuple(map(max, most, memory(process.pid, traces) or most))
        time.sleep(0.1)
    return most


def measure_stalls(seconds, folder):
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        program = Path(scratch) / "stalls"
        subprocess.run(["cc", "-O2", "-o", program, ROOT / "benches/android/stalls.c", "-lpthread"], check=True)
        for way, (sync_ms, busy_mib) in WAYS.items():
            command = [program, scratch, str(seconds), str(sync_ms), str(busy_mib)]
            said = subprocess.check_output(command, text=True)
            for line in said.splitlines():
                name, writes, over_100us, over_1ms, over_10ms, longest_us = line.split()
                longest_ms = int(longest_us) / 1000
                yield f"| {way} | {name} | {writes} | {over_100us} | {over_1ms} | {over_10ms} | {longest_ms:.1f} |"


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    folder = sys.argv[2] if len(sys.argv) > 2 else "."
    subprocess.run(["cargo", "build", "--quiet", "-p", "stackbeat-android-app"], cwd=ROOT, check=True)
    print("| MiB | mapped for records | of that in memory |")
    print("|---|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        for version in (11, 14):
            if (ROOT / f"target/art/{version}/run-art").is_file():
                size, resident = (kib / 1024 for kib in measure_memory(version, scratch))
                print(f"| ART {version} | {size:.0f} | {resident:.1f} |", flush=True)
    print("\n| the file is written out | mapping | writes | > 100 µs | > 1 ms | > 10 ms | longest, ms |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for line in measure_stalls(seconds, folder):
        print(line, flush=True)


if __name__ == "__main__":
    main()
