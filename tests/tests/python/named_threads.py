"""Threads with names of every kind. Prints the last name of each, by its number, as JSON."""
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

names = {}


def works():
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        sum(range(1000))
    names[threading.get_native_id()] = threading.current_thread().name


class Early(threading.Thread):
    """Has attributes before those of its base."""

    def __init__(self):
        self.first, self.second = 1, 2
        super().__init__(target=works, name="early")


class Large(threading.Thread):
    """Has more attributes than instances share keys for."""

    def __init__(self):
        super().__init__(target=works, name="large")
        for i in range(60):
            setattr(self, f"attribute_{i}", i)


class Slotted(threading.Thread):
    __slots__ = ("slot",)


def renamed():
    works()
    threading.current_thread().name = "the second name of a thread"
    works()


def looked_at():
    works()
    vars(threading.current_thread())["more"] = 1
    works()


threads = [
    threading.Thread(target=works, name="Straße-東京-1"),
    threading.Thread(target=renamed, name="first"),
    threading.Thread(target=looked_at, name="looked at"),
    Early(),
    Large(),
    Slotted(target=works, name="slotted"),
]
for thread in threads:
    thread.start()
with ThreadPoolExecutor(1, thread_name_prefix="a-pool-with-a-long-name") as pool:
    pool.submit(works).result()
for thread in threads:
    thread.join()
print(json.dumps(names))
