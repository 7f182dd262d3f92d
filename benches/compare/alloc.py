"""Nearly all bytes are allocated in one line of `make_rows`."""
import json
import sys

made, calls = 0, 0


def index(n):
    return {i: bytearray(700) for i in range(n)}


def make_rows(n):
    rows = []
    for i in range(n):
        rows.append(bytes(4000 + i % 100))  # CAUSE
    return rows


for _ in range(150):
    index(200)
    rows = make_rows(6000)
    made += sum(map(sys.getsizeof, rows))
    calls += len(rows)
print(json.dumps({"bytes": made, "calls": calls}))
