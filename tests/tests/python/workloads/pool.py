"""Work in two processes of a pool: forked ones, and ones that begin anew."""
import concurrent.futures
import hashlib
import multiprocessing

from naps import nap


def digests(count):
    return sum(hashlib.sha256(str(i).encode()).digest()[0] for i in range(count))


def job(number):
    if number % 10 == 0:
        nap()
    return digests(1000 + number)


def main():
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            print(method, sum(pool.map(job, range(100))))


if __name__ == "__main__":
    main()
