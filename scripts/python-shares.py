#!/usr/bin/env python3
"""Shares of Python functions beside py-spy's, of the same run: py-spy samples the interpreter while stackbeat records it.

    scripts/python-shares.py [--runs 3] [--seconds 20] [--python python3.12] [--stackbeat FILE] [--spy FILE]

A sample counts for the innermost Python function on the stack, whatever C code it called. Shown are the functions with the largest
shares, and the mean absolute difference of the top 20, in points. py-spy is installed into a folder of its own when --spy does not
say where it is.
"""

import argparse
import collections
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HZ = 250
PROGRAM = '''
import json, re, sys, time, random, difflib
random.seed(1)
def tokenize(text): return re.findall(r"\\w+|[^\\w\\s]", text)
def count(tokens):
    counts = {}
    for token in tokens: counts[token] = counts.get(token, 0) + 1
    return counts
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def numbers(n):
    for i in range(n): yield i * i % 7
def total(n): return sum(numbers(n))
def by_key(x): return -x
def order(n): return sorted(range(n), key=by_key)
def pack(value): return json.loads(json.dumps(value))
def parts(a, b): return difflib.SequenceMatcher(None, a, b).get_opcodes()
def one(text):
    pack(count(tokenize(text))); fib(17); total(20000); order(20000); parts(text[:300], text[100:400])
text = " ".join(random.choice(["alpha", "beta", "gamma"]) + str(random.randrange(50)) for _ in range(4000))
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end: one(text)
'''


def innermost(stacks, functions=None):
    """CPU or samples by innermost function; `functions`: those that count, by the last part of their names."""
    sums = collections.Counter()
    for line in stacks.splitlines():
        stack, amount = line.rsplit(" ", 1)
        names = [re.sub(r" \(.*\)$|_\[\w*\]$", "", frame).split(".")[-1] for frame in stack.split(";")]
        names = [name for name in names if functions is None or name in functions]
        if names:
            sums[names[-1]] += int(amount)
    return sums


def functions_of(stacks):
    frames = (frame for line in stacks.splitlines() for frame in line.rsplit(" ", 1)[0].split(";"))
    return {re.sub(r" \(.*\)$", "", frame).split(".")[-1] for frame in frames}


def child_running(parent, executable):
    """The descendant of a process that runs this file."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as stat:
                    is_child = int(stat.read().rsplit(")", 1)[1].split()[1]) == parent
                if is_child and os.path.realpath(f"/proc/{name}/exe") == executable:
                    return name
            except OSError:
                pass
        time.sleep(0.1)
    sys.exit("the program does not run")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--seconds", type=int, default=20)
    arguments.add_argument("--python", default="/usr/bin/python3")
    arguments.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    arguments.add_argument("--spy")
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spy = arguments.spy
        if not spy:
            subprocess.run([sys.executable, "-m", "venv", folder + "/venv"], check=True)
            subprocess.run([folder + "/venv/bin/pip", "-q", "install", "py-spy"], check=True)
            spy = folder + "/venv/bin/py-spy"
        program, trace, raw = (os.path.join(folder, name) for name in ("load.py", "t.beat", "spy.raw"))
        with open(program, "w") as file:
            file.write(PROGRAM)
        differences = []
        for _ in range(arguments.runs):
            command = [arguments.stackbeat, "record", "-q", "--force", "-o", trace, "--", arguments.python, program]
            recorder = subprocess.Popen(command + [str(arguments.seconds + 3)])
            pid = child_running(recorder.pid, os.path.realpath(arguments.python))
            time.sleep(1)
            watch = [spy, "record", "-r", str(HZ), "-d", str(arguments.seconds), "-f", "raw", "-o", raw, "-p", pid]
            subprocess.run(watch, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            recorder.wait()
            export = [arguments.stackbeat, "export", "--to", "folded", "--weight", "cpu", "-o", "-", trace]
            ours = subprocess.run(export, check=True, capture_output=True, text=True).stdout
            with open(raw) as file:
                theirs = file.read()
            functions = functions_of(theirs)
            sums = innermost(theirs), innermost(ours, functions)
            shares = [{name: 100 * n / sum(side.values()) for name, n in side.items()} for side in sums]
            top = sorted(shares[0], key=shares[0].get, reverse=True)[:20]
            print(f"{'function':28} py-spy stackbeat, % of {sum(sums[0].values())} samples")
            for name in top[:10]:
                print(f"{name:28} {shares[0][name]:6.2f} {shares[1].get(name, 0):9.2f}")
            differences.append(statistics.mean(abs(shares[0][name] - shares[1].get(name, 0)) for name in top))
            print(f"mean absolute difference of the top {len(top)}: {differences[-1]:.2f} points", flush=True)
    print(f"median of {len(differences)} runs: {statistics.median(differences):.2f} points")


main()
