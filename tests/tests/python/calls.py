"""Calls chains of functions that are made at run time and thrown away, in several threads: f_ID_0 calls f_ID_1 and so on, all of
the file made_ID, each a line further down. Whatever a sample meets has to be such a chain."""
import sys
import threading
import time

DEPTH = 12


def make(number):
    parts = []
    for level in range(DEPTH):
        inner = f"f_{number}_{level + 1}(n)" if level + 1 < DEPTH else "sum(i * i for i in range(n))"
        parts.append(f"def f_{number}_{level}(n): return {inner}\n")
    scope = {"sum": sum, "range": range}
    exec(compile("".join(parts), f"made_{number}", "exec"), scope)
    return scope[f"f_{number}_0"]


def run(first, until):
    number = first
    while time.monotonic() < until:
        function = make(number)
        for i in range(200):
            function(i % 20)
        number += 16


until = time.monotonic() + float(sys.argv[1])
threads = [threading.Thread(target=run, args=(i, until)) for i in range(1, 4)]
for thread in threads:
    thread.start()
run(0, until)
for thread in threads:
    thread.join()
