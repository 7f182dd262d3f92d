"""Threads stop at many places of their stacks, while others compute. Says where they stood then, as the interpreter's
`sys._current_frames()` has it: a JSON object of thread id to a list of stacks, each a list of [name, line], outermost first."""
import json
import os
import random
import select
import sys
import threading
import time

from qualified_names import qualified_name


def account(frame):
    stack = []
    while frame is not None:
        stack.append([qualified_name(frame.f_code), frame.f_lineno])
        frame = frame.f_back
    stack.reverse()
    return stack


class Stop:
    """Where a thread waits until it was looked at."""

    def __init__(self):
        self.is_there, self.say_there = os.pipe()
        self.may_go, self.let_go = os.pipe()
        self.poll = select.poll()
        self.poll.register(self.may_go, select.POLLIN)


def nap(stop):
    # One line, so that it is always the same one that is seen.
    os.write(stop.say_there, b"."); stop.poll.poll()


def generator(go):
    yield go()


class Thing:
    def __init__(self, go):
        self.go = go

    def method(self):
        self.go()

    def __lt__(self, other):
        self.go()
        return False


def recursion(go, depth):
    if depth == 0:
        go()
    else:
        recursion(go, depth - 1)


WAYS = [
    lambda go: go(),
    lambda go: list(generator(go)),
    lambda go: Thing(go).method(),
    lambda go: min(Thing(go), Thing(go)),
    lambda go: sorted([2], key=lambda _: go()),
    lambda go: [go() for _ in range(1)],
    lambda go: recursion(go, random.randrange(20)),
]


def descend(stop, depth):
    if depth == 0:
        nap(stop)
        os.read(stop.may_go, 1)
    else:
        random.choice(WAYS)(lambda: descend(stop, depth - 1))


def work(stop, native_ids, count):
    native_ids[threading.get_ident()] = threading.get_native_id()
    for _ in range(count):
        descend(stop, random.randrange(1, 6))


def await_poll(native_id):
    """Where others want the processors, a thread is in its call some time after it said so."""
    POLL, PPOLL = "7 ", "271 "
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with open(f"/proc/self/task/{native_id}/syscall") as call:
            if call.read().startswith((POLL, PPOLL)):
                return
        time.sleep(0.0002)
    raise TimeoutError(f"thread {native_id} does not poll")


def compute(is_over):
    """Runs all the time, so that no other thread is ever alone."""
    while not is_over.is_set():
        recursion(lambda: sum(range(50)), 10)


def main():
    sys.setswitchinterval(0.0005)
    count = int(sys.argv[1])
    native_ids, stacks, is_over = {}, {}, threading.Event()
    stops = [Stop() for _ in range(3)]
    workers = [threading.Thread(target=work, args=(stop, native_ids, count)) for stop in stops]
    others = [threading.Thread(target=compute, args=(is_over,)) for _ in range(2)]
    for thread in workers + others:
        thread.start()
    for _ in range(count):
        for stop, worker in zip(stops, workers):
            os.read(stop.is_there, 1)
            await_poll(native_ids[worker.ident])
            # Shorter waits have no record of their own.
            time.sleep(0.004)
            stack = account(sys._current_frames()[worker.ident])
            stacks.setdefault(native_ids[worker.ident], []).append(stack)
            os.write(stop.let_go, b".")
    is_over.set()
    for thread in workers + others:
        thread.join()
    print(json.dumps(stacks))


main()
