"""`receive` waits for a pipe into which `feed` of another thread writes late."""
import json
import os
import threading
import time

source, sink = os.pipe()


def receive():
    begin = time.monotonic()
    os.read(source, 1)  # CAUSE
    return time.monotonic() - begin


def feed():
    time.sleep(0.02)
    os.write(sink, b"x")  # WAKER


def feeder():
    for _ in range(100):
        feed()


thread = threading.Thread(target=feeder, name="feeder")
thread.start()
waited = sum(receive() for _ in range(100))
thread.join()
print(json.dumps({"wait_s": waited}))
