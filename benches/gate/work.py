"""A Python program whose change is said by its arguments: work.py [KIND SIZE].

SIZE is the share of the program's time that the change should add, 0.05 for 5 %. The work is a few
hundred equal units of the things scripts do: JSON, regular expressions, compression, lists, files.
"""
import hashlib
import json
import os
import re
import sys
import tempfile
import time
import zlib

UNITS = 250
kind = sys.argv[1] if len(sys.argv) > 1 else "none"
size = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
# Seconds that one unit takes, about; what waits is measured by it.
UNIT_S = 0.0008
debt = 0.0


def parse(rows):
    total = 0
    for i in range(rows):
        row = json.loads(json.dumps({"id": i, "tags": list(range(20)), "name": "x" * (i % 40)}))
        total += len(row["tags"])
    return total


def match(rows):
    return sum(len(re.findall(r"[a-f]+\d+", "abc123 def456 %d zz" % i)) for i in range(rows))


def pack(rows):
    data = b"hello, stack beat " * 200
    return sum(len(zlib.compress(data + bytes([i % 256]), 6)) for i in range(rows))


def digest(rows):
    data = b"0123456789abcdef" * 64
    return sum(hashlib.md5(data).digest()[0] for _ in range(rows))


def whole(amount):
    """The amount as a whole number; what is cut off is owed to the next unit."""
    global debt
    debt += amount
    now = int(debt)
    debt -= now
    return now


def spin(steps):
    x = 1
    for _ in range(steps):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def keep_lists(count):
    return [[j] * 8 for j in range(count)]


def look_up(count):
    seen = list(range(200))
    return sum(1 for i in range(count) if 199 - i % 3 in seen)


def nap(seconds):
    time.sleep(seconds)


def flush(file, times):
    for _ in range(times):
        file.write(b"x" * 512)
        file.flush()
        os.fsync(file.fileno())


def compile_again(times):
    for i in range(times):
        re.purge()
        re.compile(r"(a|b)+c{%d}[d-f]*" % (i % 7))


def touch_pages(count):
    for _ in range(count):
        block = bytearray(256 * 4096)
        del block


# How much of each makes one unit's worth of time, measured once; SIZE is a share of it.
A_UNIT = {
    "cpu": 7750, "quadratic": 424, "alloc": 4200, "recompile": 15, "faults": 41, "fsync": 1.1,
}


def change(file):
    amount = whole(A_UNIT.get(kind, 0) * size)
    if kind == "cpu":
        spin(amount)
    elif kind == "quadratic":
        look_up(amount)
    elif kind == "alloc":
        keep_lists(amount)
    elif kind == "recompile":
        compile_again(amount)
    elif kind == "faults":
        touch_pages(amount)
    elif kind == "sleep":
        nap(UNIT_S * size)
    elif kind == "fsync":
        flush(file, amount)


def main():
    result = 0
    with tempfile.TemporaryFile() as file:
        for _ in range(UNITS):
            result += parse(40) + match(120) + pack(4) + digest(120)
            change(file)
    print(result)


main()
