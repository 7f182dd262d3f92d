"""`lookup` waits for a lock that `refresh` holds while it sleeps."""
import json
import threading
import time

lock = threading.Lock()
is_held = threading.Event()


def refresh():
    with lock:
        is_held.set()
        time.sleep(0.02)  # HOLDER


def lookup():
    begin = time.monotonic()
    lock.acquire()  # CAUSE
    waited = time.monotonic() - begin
    lock.release()
    return waited


def refresher():
    for _ in range(100):
        refresh()
        turn.wait()
        turn.clear()


turn = threading.Event()
thread = threading.Thread(target=refresher, name="refresher")
thread.start()
waited = 0.0
for _ in range(100):
    is_held.wait()
    is_held.clear()
    waited += lookup()
    turn.set()
thread.join()
print(json.dumps({"wait_s": waited}))
