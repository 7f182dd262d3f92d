"""Threads that ask sqlite: shelf.py [KIND AMOUNT].

Two readers put the same questions to a catalogue, each over a connection of its own. Of kind shared-connection, the
last AMOUNT questions of both go over the same connection.
"""
import sqlite3
import sys
import threading

QUESTIONS = 400
BOOKS = 8000
KIND = sys.argv[1] if len(sys.argv) > 1 else "none"
AMOUNT = round(float(sys.argv[2])) if len(sys.argv) > 2 else 0


def make_catalogue():
    catalogue = sqlite3.connect(":memory:", check_same_thread=False)
    catalogue.execute("CREATE TABLE book(id INTEGER PRIMARY KEY, year INT)")
    rows = ((i, 1450 + i * 7919 % 570) for i in range(BOOKS))
    catalogue.executemany("INSERT INTO book VALUES(?, ?)", rows)
    return catalogue


def read(own, shared, results):
    for number in range(QUESTIONS):
        catalogue = shared if number >= QUESTIONS - AMOUNT else own
        question = "SELECT sum(year * 7919 % 10007) FROM book WHERE year <> ?"
        results += catalogue.execute(question, (1450 + number,)).fetchone()


def main():
    catalogues = [make_catalogue(), make_catalogue()]
    shared = catalogues[0] if KIND == "shared-connection" else None
    results = []
    readers = [threading.Thread(target=read, args=(own, shared, results), name="reader") for own in catalogues]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    print(sum(results))


main()
