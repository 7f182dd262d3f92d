#!/usr/bin/env python3
"""Runs stress-ng's programs recorded beside plain runs: they do to a process what few other programs do.

    scripts/stress-ng.py [--seconds 1] [--interval 1ms] [STRESSOR …]

Without names all run but those that work on devices and file systems, or take all of a resource. Checked are status, complaints,
time, and `stackbeat info --check`. STACKBEAT names the binary; target/release/stackbeat otherwise. Exit status 1: some differ.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STACKBEAT = os.environ.get("STACKBEAT", str(ROOT / "target/release/stackbeat"))
LEFT_OUT = "device filesystem io gpu".split()
# They take all memory, all processes, or what the machine needs.
GREEDY = "bigheap brk clone-none cpu-online fork-bomb loop memhotplug module oom-pipe physpage quota reboot resources smi softlockup stack swap vm watchdog".split()
COMPLAINT = re.compile(r"fail|error|corrupt|SIG(SEGV|BUS|ILL|ABRT|TRAP|SYS)|unexpected", re.IGNORECASE)
HANG_S = 60
# Recording begins, ends and looks names up besides.
SLOWER_S = 10


def stressors(kind=None):
    command = ["stress-ng", "--class", f"{kind}?"] if kind else ["stress-ng", "--stressors"]
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[-1].split(":")[-1].split()


def run(command, folder):
    """Status, complaints and seconds."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True, cwd=folder)
    try:
        output, _ = process.communicate(timeout=HANG_S)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        status = "hangs"
    lines = [line for line in output.splitlines() if COMPLAINT.search(line) and not re.search(r"\b0 failed|failed: 0", line)]
    return status, lines, time.monotonic() - began


def compare(name, options, folder):
    """What differs."""
    plain = ["stress-ng", f"--{name}", "1", "--timeout", f"{options.seconds}s", "--verify", "--temp-path", str(folder), "--oomable"]
    trace = folder / "t.beat"
    recorded = [STACKBEAT, "record", "-q", "--force", "-o", str(trace), "--interval", options.interval, "--", *plain]
    status, lines, seconds = run(plain, folder)
    status_then, lines_then, seconds_then = run(recorded, folder)
    wrong = []
    if status_then != status:
        wrong.append(f"status {status_then}, plain {status}")
    if len(lines_then) > len(lines):
        wrong += lines_then[:5]
    if seconds_then > seconds + SLOWER_S:
        wrong.append(f"{seconds_then:.1f} s, plain {seconds:.1f} s")
    check = subprocess.run([STACKBEAT, "info", "--check", trace], capture_output=True, text=True)
    if check.returncode != 0:
        wrong += [line for line in check.stdout.splitlines() if line.split()[:1] == ["check"]][:5] or [check.stderr]
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--interval", default="1ms")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if not shutil.which("stress-ng"):
        sys.exit("stress-ng is not installed: apt-get install stress-ng")
    without = set(GREEDY).union(*map(stressors, LEFT_OUT))
    names = options.names or [name for name in stressors() if name not in without]
    differ = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            wrong = compare(name, options, pathlib.Path(folder))
        differ += bool(wrong)
        print(f"{name}: {'; '.join(wrong) or 'ok'}", flush=True)
    print(f"{len(names)} stressors, {differ} differ")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
