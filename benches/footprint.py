#!/usr/bin/env python3
"""What a recording adds to a small program's address space and memory.

    benches/footprint.py [--runs 5] [--stackbeat FILE]

`cat` prints its own /proc/self/status and /proc/self/maps, alone and recorded. Shown are medians.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

from overhead import ROOT


def figures(command):
    """VmSize and VmRSS in MB, and the number of mappings."""
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    kilobytes = dict(line.split(":", 1) for line in text if line.startswith(("VmSize:", "VmRSS:")))
    mappings = [line for line in text if line[:1] in "0123456789abcdef" and "-" in line.split(" ")[0]]
    return [*(int(kilobytes[key].split()[0]) / 1000 for key in ["VmSize", "VmRSS"]), len(mappings)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    options = parser.parse_args()
    program = ["cat", "/proc/self/status", "/proc/self/maps"]
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "cat.beat")
        record = [options.stackbeat, "record", "-q", "--force", "-o", trace, "--"]
        alone, recorded = (
            [statistics.median(column) for column in zip(*(figures(command) for _ in range(options.runs)))]
            for command in [program, [*record, *program]]
        )
    print("| | alone | recorded |\n|---|--:|--:|")
    for name, before, after in zip(["`VmSize`, MB", "`VmRSS`, MB", "lines of `/proc/self/maps`"], alone, recorded):
        print(f"| {name} | {before:.4g} | {after:.4g} |")


if __name__ == "__main__":
    main()
