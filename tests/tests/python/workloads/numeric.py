"""Matrices that libblas multiplies in threads of its own, and many short calls from nested functions, in four threads."""
import threading

import numpy
from naps import nap


def short_calls(array, i):
    for _ in range(10):
        array = numpy.sqrt(numpy.abs(numpy.sin(array) + i))
    return array.sum()


def rows(array, count):
    return sum(short_calls(array, i) for i in range(count))


def arrays(rounds):
    array, total = numpy.arange(64.0), 0
    for i in range(rounds):
        total += numpy.apply_along_axis(rows, 0, array, i % 5)
        if i % 50 == 0:
            numpy.frompyfunc(lambda _: nap(), 1, 1)(1)
    return total


def matrices(rounds):
    matrix = numpy.random.default_rng(3).random((300, 300))
    for _ in range(rounds):
        matrix = matrix @ matrix
        matrix /= numpy.linalg.norm(matrix)
    return matrix.sum()


def work(results, number):
    results[number] = arrays(500), matrices(8)


def main():
    results = {}
    threads = [threading.Thread(target=work, args=(results, i)) for i in range(3)]
    for thread in threads:
        thread.start()
    work(results, 3)
    for thread in threads:
        thread.join()
    # Sums of products depend on how many threads there are, in the last digits.
    print(*(f"{i} {total:.6g} {product:.6g}" for i, (total, product) in sorted(results.items())))


main()
