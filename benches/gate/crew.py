"""Threads that wait for each other: crew.py [KIND AMOUNT].

The main thread parses, lets a checker derive a key from what it parsed, and waits for that; an archivist writes
what it is told to. AMOUNT, in a measure of the kind's own, is spread evenly over the units.
"""
import hashlib
import json
import os
import queue
import sys
import tempfile
import threading
import time

UNITS = 240
KIND = sys.argv[1] if len(sys.argv) > 1 else "none"
AMOUNT = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
# Iterations of every key.
ITERATIONS = 300


def share(unit):
    return int(AMOUNT * (unit + 1) / UNITS) - int(AMOUNT * unit / UNITS)


def parse(rows):
    total = 0
    for i in range(rows):
        row = json.loads(json.dumps({"id": i, "tags": list(range(20)), "name": "x" * (i % 40)}))
        total += len(row["tags"])
    return total


if KIND == "lock-file":
    import fcntl
    import zlib


class Checker:
    def __init__(self):
        self.asked, self.answers = queue.SimpleQueue(), queue.SimpleQueue()
        self.thread = threading.Thread(target=self.work, name="checker")
        self.thread.start()

    def work(self):
        while (iterations := self.asked.get()) is not None:
            self.answers.put(hashlib.pbkdf2_hmac("sha256", b"a page", b"a pinch", iterations))

    def ask(self, iterations):
        self.asked.put(iterations)
        return len(self.answers.get())

    def ask_and_poll(self, iterations):
        self.asked.put(iterations)
        while True:
            try:
                return len(self.answers.get_nowait())
            except queue.Empty:
                time.sleep(0.001)


class Archivist:
    """Has the ledger locked until the disk has what it wrote."""

    def __init__(self):
        self.asked, self.started = queue.SimpleQueue(), queue.SimpleQueue()
        self.ledger = threading.Lock()
        self.file = tempfile.TemporaryFile(buffering=0)
        self.thread = threading.Thread(target=self.work, name="archivist")
        self.thread.start()

    def work(self):
        while self.asked.get() is not None:
            with self.ledger:
                self.started.put(True)
                self.file.write(b"a line of the ledger\n")
                os.fsync(self.file.fileno())

    def write_and_look(self, times):
        for _ in range(times):
            self.asked.put(True)
            self.started.get()
            with self.ledger:
                pass


class Binder:
    """Packs pages, and has a lock file locked meanwhile."""

    def __init__(self):
        self.asked, self.started = queue.SimpleQueue(), queue.SimpleQueue()
        self.file = tempfile.NamedTemporaryFile()
        self.pages = b"".join(b"page %d of the ledger\n" % (i * 7919 % 10007) for i in range(1200))
        self.thread = threading.Thread(target=self.work, name="binder")
        self.thread.start()

    def work(self):
        with open(self.file.name) as lock:
            while self.asked.get() is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.started.put(True)
                zlib.compress(self.pages)
                fcntl.flock(lock, fcntl.LOCK_UN)

    def pack_and_look(self, times):
        for _ in range(times):
            self.asked.put(True)
            self.started.get()
            fcntl.flock(self.file, fcntl.LOCK_EX)
            fcntl.flock(self.file, fcntl.LOCK_UN)


def note_in_threads(times):
    """Lines that are noted by a thread each, which is waited for."""
    notes = []
    for number in range(times):
        clerk = threading.Thread(target=notes.append, args=(number,), name="clerk")
        clerk.start()
        clerk.join()


def main():
    checker, archivist = Checker(), Archivist()
    binder = Binder() if KIND == "lock-file" else None
    result = 0
    for unit in range(UNITS):
        result += parse(60)
        if KIND == "polled-answer" and share(unit):
            result += checker.ask_and_poll(ITERATIONS)
        else:
            result += checker.ask(ITERATIONS + (share(unit) if KIND == "slower-worker" else 0))
        if KIND == "lock-during-sync":
            archivist.write_and_look(share(unit))
        if KIND == "thread-per-note":
            note_in_threads(share(unit))
        if binder:
            binder.pack_and_look(share(unit))
    for helper in filter(None, (checker, archivist, binder)):
        helper.asked.put(None)
        helper.thread.join()
    print(result)


main()
