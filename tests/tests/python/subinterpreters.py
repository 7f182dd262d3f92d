# Sleeps in functions of a sub-interpreter, and in those of one that it has made, in the main thread and another.
import sys
import threading

INNER = """
import select
def nap():
    for _ in range(20):
        select.select([], [], [], 0.003)
def in_sub():
    nap()
in_sub()
"""

RUN = """
try:
    import _interpreters
    run = _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    run = _interpreters.run_string
def enter(code):
    run(_interpreters.create(), code)
"""

exec(RUN)


def work():
    enter(INNER)
    if sys.argv[1] == "nested":
        enter(RUN + "INNER = " + repr(INNER) + "\ndef outer_sub():\n    enter(INNER)\nouter_sub()\n")


work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
