"""Most of the CPU time is one line of `score`."""
import json
import time


def parse(n):
    return sum(len(str(i)) for i in range(n))


def score(n):
    total = 0
    for i in range(n):
        total = (total * 31 + i ** 7 % 1000003 + total // 7) % 1000003  # CAUSE
    return total


scored = 0.0
for _ in range(200):
    parse(12_000)
    before = time.thread_time()
    score(18_000)
    scored += time.thread_time() - before
print(json.dumps({"share": scored / time.process_time()}))
