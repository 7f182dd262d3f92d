#!/usr/bin/env python3
"""What the recorder does after a program's end, nearly all of it for names.

    benches/names.py [--runs 9] [--stackbeat FILE]

Programs are recorded without the cache of unpacked debug sections, with an empty one, and with the one that the recording
before has filled, in turns. Shown is the recorder's CPU time after the program's end and the time that names took by the
clock, ms: median and range.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

from overhead import ROOT

PROGRAMS = [
    ["true"],
    ["git", "-C", ROOT, "log", "--stat", "-n", "200"],
    ["python3", "-c", "import json, re, decimal"],
    ["node", "-e", "console.log(1)"],
    ["sqlite3", ":memory:", "with recursive n(i) as (select 1 union all select i+1 from n limit 100000) select sum(i) from n"],
]
COLUMNS = ["--no-symbol-cache", "first recording", "second recording"]


def milliseconds(stackbeat, folder, program, *options):
    """CPU time after the end, and time for names."""
    trace = os.path.join(folder, "names.beat")
    record = [stackbeat, "record", "-q", "--force", "-o", trace, *options, "--", *program]
    environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache")}
    subprocess.run(record, check=True, env=environment, stdout=subprocess.DEVNULL)
    told = subprocess.run([stackbeat, "info", "--json", trace], check=True, capture_output=True).stdout
    figures = {figure["name"]: figure["value"] for figure in json.loads(told)["recorder_figures"]}
    return [figures[name] / 1e6 for name in ["after_cpu_ns", "symbolize_ns"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    options = parser.parse_args()
    programs = [program for program in PROGRAMS if shutil.which(program[0])]
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.runs):
            for row, program in enumerate(programs):
                shutil.rmtree(os.path.join(folder, "cache"), ignore_errors=True)
                for column, more in zip(COLUMNS, [["--no-symbol-cache"], [], []]):
                    figures = milliseconds(options.stackbeat, folder, program, *more)
                    results.setdefault((row, column), []).append(figures)
    for nth, title in enumerate(["CPU time", "time by the clock"]):
        print(f"| {title} | " + " | ".join(COLUMNS) + " |\n|---" + "|--:" * len(COLUMNS) + "|")
        for row, program in enumerate(programs):
            cells = []
            for column in COLUMNS:
                values = [figures[nth] for figures in results[row, column]]
                cells.append(f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
            name = " ".join(os.path.basename(word) for word in program)[:50]
            print(f"| `{name}` | " + " | ".join(cells) + " |")
        print()


if __name__ == "__main__":
    main()
