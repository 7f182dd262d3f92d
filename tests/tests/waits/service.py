"""Waits of threads and processes for each other. The argument is the number of rounds of each kind."""

import multiprocessing
import queue
import subprocess
import sys
import threading
import time

WORK_S = 0.003


def answers(connection):
    while (number := connection.recv()) is not None:
        time.sleep(WORK_S)
        connection.send(number + 1)


def passes_on(source, target):
    while (number := source.get()) is not None:
        time.sleep(WORK_S)
        target.put(number + 1)


def asks(put, get, rounds):
    for number in range(rounds):
        put(number)
        assert get() == number + 1
    put(None)


def main(rounds):
    here, there = multiprocessing.Pipe()
    child = multiprocessing.Process(target=answers, args=(there,))
    child.start()
    asks(here.send, here.recv, rounds)
    child.join()

    for make, queue_of in (
        (threading.Thread, queue.Queue),
        (multiprocessing.Process, multiprocessing.Queue),
    ):
        source, target = queue_of(), queue_of()
        worker = make(target=passes_on, args=(source, target))
        worker.start()
        asks(source.put, target.get, rounds)
        worker.join()

    said = subprocess.run(["sleep", "0.01"], capture_output=True, check=True)
    assert said.stdout == b""
    with multiprocessing.Pool(2) as pool:
        pool.map(time.sleep, [WORK_S] * rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]))
