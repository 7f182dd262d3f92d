"""A thread waits for what never comes, until the process ends."""
import os
import threading
import time


def forever():
    threading.Event().wait()


threading.Thread(target=forever, daemon=True).start()
time.sleep(1.5)
os._exit(0)
