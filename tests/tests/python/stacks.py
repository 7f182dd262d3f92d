"""Sleeps at many places of random stacks, and says where by the interpreter's own account: a JSON object of thread id to
a list of stacks, each a list of [name, line], outermost first."""
import asyncio
import contextlib
import functools
import json
import random
import select
import sys
import threading

from qualified_names import qualified_name


def account():
    frame, stack = sys._getframe(1), []
    while frame is not None:
        stack.append([qualified_name(frame.f_code), frame.f_lineno])
        frame = frame.f_back
    stack.reverse()
    return stack


def nap(stacks):
    # A time from now on, whatever comes in between: `time.sleep` ends at a time that it has computed before.
    stacks.append(account()); select.poll().poll(3)


class Thing:
    def __init__(self, go):
        self.go = go
        go()

    def method(self, go):
        go()

    @property
    def value(self):
        self.go()
        return 1

    @staticmethod
    def ohne_nämen_ß(go):
        go()

    def __lt__(self, other):
        self.go()
        return False

    def __del__(self):
        pass


def generator(go):
    for i in range(2):
        if i == 1:
            go()
        yield i


def delegating(go):
    yield from generator(go)


@contextlib.contextmanager
def context(go):
    go()
    yield


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper


@decorated
@decorated
def call_decorated(go):
    go()


async def coroutine(go):
    go()


async def awaiting(go):
    await coroutine(go)


def made_at_run_time(go):
    number = random.randrange(1 << 30)
    scope = {}
    exec(f"{chr(10) * (number % 50)}def made_{number}(go):\n    go()\n", scope)
    scope[f"made_{number}"](go)


def recursion(go, depth):
    if depth == 0:
        go()
    else:
        recursion(go, depth - 1)


def silent_thing(go):
    thing = Thing(lambda: None)
    thing.go = go
    return thing


WAYS = [
    lambda go: go(),
    lambda go: Thing(go),
    lambda go: silent_thing(go).method(go),
    lambda go: silent_thing(go).value,
    lambda go: Thing.ohne_nämen_ß(go),
    lambda go: min(silent_thing(go), silent_thing(go)),
    lambda go: list(generator(go)),
    lambda go: [x for x in generator(go)],
    lambda go: sum(delegating(go)),
    lambda go: sorted([2], key=lambda _: go()),
    lambda go: list(map(lambda _: go(), [1])),
    lambda go: functools.reduce(lambda a, b: go(), [1, 2]),
    lambda go: [go() for _ in range(1)],
    lambda go: asyncio.new_event_loop().run_until_complete(awaiting(go)),
    made_at_run_time,
    lambda go: recursion(go, random.randrange(30)),
    call_decorated,
]


def with_context(go):
    with context(go):
        pass


WAYS.append(with_context)


def catching(go):
    try:
        yield
    except ValueError:
        go()


def passing(go):
    yield from catching(go)


def throwing(go):
    """An exception is thrown through one generator into another one."""
    outer = passing(go)
    next(outer)
    try:
        outer.throw(ValueError())
    except StopIteration:
        pass


# Before that the interpreter's own account ends at `passing`.
if sys.version_info >= (3, 10):
    WAYS.append(throwing)


def descend(stacks, depth):
    if depth == 0:
        return nap(stacks)
    way = random.choice(WAYS)
    # An event loop may not run inside another one.
    while "awaiting" in way.__code__.co_names and depth != 1:
        way = random.choice(WAYS)
    way(lambda: descend(stacks, depth - 1))


def work(all_stacks, seed, count):
    stacks = []
    all_stacks[threading.get_native_id()] = stacks
    for _ in range(count):
        descend(stacks, random.randrange(1, 9))


def main():
    random.seed(int(sys.argv[2]))
    count = int(sys.argv[1])
    all_stacks = {}
    threads = [threading.Thread(target=work, args=(all_stacks, i, count)) for i in range(3)]
    for thread in threads:
        thread.start()
    work(all_stacks, 7, count)
    for thread in threads:
        thread.join()
    return all_stacks


class Last:
    """Goes when the interpreter ends, and sleeps once more."""

    def __init__(self, all_stacks):
        self.all_stacks = all_stacks

    def __del__(self):
        nap(self.all_stacks[threading.get_native_id()])
        print(json.dumps(self.all_stacks))


# Such names are the first to go.
_last = Last(main())
