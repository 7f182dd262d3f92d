"""A Python program whose change is said by its arguments: work.py [KIND AMOUNT].

The work is a few hundred equal units of the things scripts do: JSON, regular expressions, compression,
hashes, files. AMOUNT, in a measure of the kind's own, is spread evenly over them.
"""
import gc
import hashlib
import json
import mmap
import os
import re
import socket
import sys
import tempfile
import threading
import time
import zlib

UNITS = 220
KIND = sys.argv[1] if len(sys.argv) > 1 else "none"
AMOUNT = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0


def share(unit):
    """What this unit gets of the whole amount, as a whole number."""
    return int(AMOUNT * (unit + 1) / UNITS) - int(AMOUNT * unit / UNITS)


def parse(rows):
    total = 0
    for i in range(rows):
        row = json.loads(json.dumps({"id": i, "tags": list(range(20)), "name": "x" * (i % 40)}))
        total += len(row["tags"])
    return total


def match(rows):
    return sum(len(re.findall(r"[a-f]+\d+", "abc123 def456 %d zz" % i)) for i in range(rows))


def pack(rows, harder):
    data = b"hello, stack beat " * 200
    for i in range(harder):
        zlib.compress(data + bytes([i % 256]), 9)
    return sum(len(zlib.compress(data + bytes([i % 256]), 6)) for i in range(rows))


def digest(rows, slower):
    data = b"0123456789abcdef" * 64
    total = 0
    for i in range(rows):
        hashed = hashlib.sha3_512(data) if i < slower else hashlib.md5(data)
        total += len(hashed.hexdigest())
    return total


def read_all(file, small):
    """64 KiB of a file: the first `small` reads take 64 bytes each, one takes the rest."""
    file.seek(0)
    done = 0
    for _ in range(small):
        done += len(file.read(64))
    return done + len(file.read(65536 - done))


def write_log(lines, raw, unbuffered):
    """Log lines, the first `unbuffered` of them past the buffer."""
    for i in range(40):
        lines.write(b"unit %d says nothing new\n" % i)
    for i in range(unbuffered):
        raw.write(b"unit %d says nothing new\n" % i)


def spin(steps):
    x = 1
    for _ in range(steps):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def keep_lists(count):
    """Objects too large for python's own allocator, which takes up to 512 bytes."""
    return [[j] * 80 for j in range(count)]


def look_up(count):
    seen = list(range(200))
    return sum(1 for i in range(count) if 199 - i % 3 in seen)


def compile_again(times):
    for i in range(times):
        re.purge()
        re.compile(r"(a|b)+c{%d}[d-f]*" % (i % 7))


def touch_pages(count):
    if count:
        with mmap.mmap(-1, count * mmap.PAGESIZE) as pages:
            pages[:: mmap.PAGESIZE] = bytes(count)


def write_after_giving_back(scratch, count):
    """A byte of each page, `count` pages in all, which the kernel has to find anew."""
    while count:
        pages = min(count, len(scratch) // mmap.PAGESIZE)
        scratch[: pages * mmap.PAGESIZE : mmap.PAGESIZE] = bytes(pages)
        scratch.madvise(mmap.MADV_DONTNEED)
        count -= pages


def nap(times):
    for _ in range(times):
        time.sleep(0.0005)


def read_uncached(file, times):
    for i in range(times):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(file.fileno(), 16384, i % 16 * 65536)


def ask_names(waiting, times):
    """Questions to a server that does not answer within its millisecond."""
    for _ in range(times):
        try:
            waiting.recvfrom(512)
        except TimeoutError:
            pass


def fail(times):
    caught = 0
    for i in range(times):
        try:
            raise KeyError(i)
        except KeyError:
            caught += 1
    return caught


def sort_again(times):
    if times:
        values = [j * 7919 % 10007 for j in range(2000)]
        for _ in range(times):
            sorted(values)


def start_child(times):
    """A program that ends at once, and is waited for."""
    for _ in range(times):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def look_at_file(file, times):
    for _ in range(times):
        os.stat(file.fileno())


def collect(times):
    for _ in range(times):
        gc.collect()


# Who waits, in the order of their coming.
WAITING = []


def take_first(times):
    if times and not WAITING:
        WAITING.extend(range(20000))
    for _ in range(times):
        WAITING.append(WAITING.pop(0))


class Files:
    """What the units read and write, in the folder that TMPDIR names."""

    def __init__(self):
        self.raw = tempfile.TemporaryFile(buffering=0)
        self.raw.write(b"a line of thirty-two characters\n" * 32768)
        os.fsync(self.raw.fileno())
        self.log = tempfile.TemporaryFile()
        self.log_raw = tempfile.TemporaryFile(buffering=0)
        self.scratch = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.waiting = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.waiting.bind(("127.0.0.1", 0))
        self.waiting.settimeout(0.001)


def change(kind, amount, files):
    if kind == "cpu-loop":
        spin(amount)
    elif kind == "quadratic":
        look_up(amount)
    elif kind == "extra-allocations":
        keep_lists(amount)
    elif kind == "regex-recompiled":
        compile_again(amount)
    elif kind == "page-faults":
        touch_pages(amount)
    elif kind == "memory-given-back":
        write_after_giving_back(files.scratch, amount)
    elif kind == "sleep":
        nap(amount)
    elif kind == "uncached-reads":
        read_uncached(files.raw, amount)
    elif kind == "dns-wait":
        ask_names(files.waiting, amount)
    elif kind == "exceptions":
        fail(amount)
    elif kind == "sorted-again":
        sort_again(amount)
    elif kind == "child-process":
        start_child(amount)
    elif kind == "stat-calls":
        look_at_file(files.raw, amount)
    elif kind == "collections":
        collect(amount)
    elif kind == "list-as-queue":
        take_first(amount)


def unit(number, files):
    amount = share(number)
    of = lambda kind: amount if KIND == kind else 0
    result = parse(40) + match(120) + pack(4, of("harder-compression")) + digest(120, of("slower-hash"))
    result += read_all(files.raw, of("smaller-reads"))
    write_log(files.log, files.log_raw, of("disabled-buffering"))
    change(KIND, amount, files)
    return result


def main():
    files = Files()
    results = []
    work = lambda first, last: results.extend(unit(number, files) for number in range(first, last))
    # A second thread does the last units while this one waits for it: the work moves and stays as much.
    moved = int(AMOUNT) if KIND == "moved" else 0
    work(0, UNITS - moved)
    if moved:
        helper = threading.Thread(target=work, args=(UNITS - moved, UNITS))
        helper.start()
        helper.join()
    print(sum(results))


main()
