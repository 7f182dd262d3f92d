# Interpreters are made and ended in a loop while threads start and end. Names of functions end with their thread's number.
import sys
import threading

try:
    import _interpreters
    run = _interpreters.exec
except ImportError:
    import _xxsubinterpreters as _interpreters
    run = _interpreters.run_string

ROUNDS = int(sys.argv[1])

NAP = """
import select
def nap():
    select.poll().poll(4)
"""

INNER = NAP + """
def inner_NUMBER():
    nap()
inner_NUMBER()
nap()
"""

OUTER = """
def before_NUMBER():
    nap()
def after_NUMBER():
    nap()
def enter_NUMBER(interpreter):
    run(interpreter, INNER)
def short_NUMBER():
    nap()
def work_NUMBER():
    for _ in range(ROUNDS):
        before_NUMBER()
        interpreter = _interpreters.create()
        thread = threading.Thread(target=short_NUMBER)
        thread.start()
        enter_NUMBER(interpreter)
        after_NUMBER()
        thread.join()
        _interpreters.destroy(interpreter)
"""


def worker(number):
    names = dict(globals(), INNER=INNER.replace("NUMBER", number))
    exec(OUTER.replace("NUMBER", number), names)
    return names["work_" + number]


def stay_0():
    for _ in range(ROUNDS):
        nap()


exec(NAP)
# Before 3.13 the main thread has a state in each.
kept = [_interpreters.create() for _ in range(20)]
others = [threading.Thread(target=worker(number)) for number in "123"]
for thread in others:
    thread.start()
stay_0()
for thread in others:
    thread.join()
