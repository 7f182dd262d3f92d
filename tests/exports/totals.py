#!/usr/bin/env python3
"""Reads an export of stackbeat with none of stackbeat's code and prints, as JSON, what each function
and leaf spent by itself: {"name": amount, ...}. Standard library only.

usage: totals.py FORMAT FILE [AMOUNT]

FORMAT: folded, speedscope, firefox, chrome, pprof, flamegraph-svg. AMOUNT names the sample type of a
pprof profile (wall, cpu, ...) or the argument of a Chrome event (self_ns, self_cpu_ns, ...); without
it Chrome's times are derived from how the events nest.

Whatever is wrong with a file (events that do not nest, indices that point nowhere, columns of
different length) ends in an error and exit code 1.
"""

import collections
import gzip
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from fractions import Fraction


def folded(path):
    totals = collections.Counter()
    for line in open(path, encoding="utf-8"):
        if line.startswith("#"):
            continue
        stack, weight = line.rstrip("\n").rsplit(" ", 1)
        levels = stack.split(";")
        assert len(levels) >= 3, line
        totals[levels[-1]] += int(weight)
    return totals


def speedscope(path):
    document = json.load(open(path, encoding="utf-8"))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in document["shared"]["frames"]]
    totals = collections.Counter()
    for profile in document["profiles"]:
        if profile["type"] == "sampled":
            assert len(profile["samples"]) == len(profile["weights"])
            for stack, weight in zip(profile["samples"], profile["weights"]):
                totals[names[stack[-1]]] += weight
            assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
            continue
        assert profile["type"] == "evented"
        stack, last = [], profile["startValue"]
        for event in profile["events"]:
            at = event["at"]
            assert at >= last, f"time goes back at {event}"
            if stack:
                totals[names[stack[-1]]] += at - last
            else:
                assert at == last, f"a hole before {event}"
            last = at
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert stack.pop() == event["frame"], f"{event} closes another frame"
        assert not stack and last == profile["endValue"]
    return totals


def firefox(path):
    document = json.load(open(path, encoding="utf-8"), parse_float=Fraction, parse_int=Fraction)
    assert document["meta"]["preprocessedProfileVersion"] == 48
    categories = len(document["meta"]["categories"])
    totals = collections.Counter()
    for thread in document["threads"]:
        strings = thread["stringArray"]
        tables = ["samples", "markers", "stackTable", "frameTable", "funcTable", "resourceTable"]
        for table in tables:
            length = thread[table]["length"]
            for name, column in thread[table].items():
                assert name in ("length", "weightType") or len(column) == length, (table, name)
        stacks, frames, functions = thread["stackTable"], thread["frameTable"], thread["funcTable"]
        for index in range(int(stacks["length"])):
            prefix = stacks["prefix"][index]
            assert prefix is None or prefix < index, "a prefix after its stack"
            assert stacks["category"][index] < categories
        samples = thread["samples"]
        assert samples["length"] > 0 and samples["weightType"] == "tracing-ms"
        assert samples["time"] == sorted(samples["time"]), "samples out of order"
        for stack, weight in zip(samples["stack"], samples["weight"]):
            if stack is None:
                assert weight == 0
                continue
            function = frames["func"][int(stacks["frame"][int(stack)])]
            totals[strings[int(functions["name"][int(function)])]] += weight * 1_000_000
        markers = thread["markers"]
        for begin, end, name in zip(markers["startTime"], markers["endTime"], markers["name"]):
            # A moment has no end.
            assert (end is None or begin <= end) and strings[int(name)]
    return {name: int(total) for name, total in totals.items()}


def chrome(path, argument=None):
    document = json.load(open(path, encoding="utf-8"))
    totals = collections.Counter()
    threads = collections.defaultdict(list)
    slices = [event for event in document["traceEvents"] if event["ph"] == "X" and "args" in event]
    first = {}
    for event in slices:
        thread = event["pid"], event["tid"]
        first[thread] = min(event["ts"], first.get(thread, event["ts"]))
    # As readers do: by begin, and those that begin together in the order of the file.
    for event in sorted(slices, key=lambda event: event["ts"]):
        open_slices = threads[event["pid"], event["tid"]]
        # As speedscope does, in floating-point numbers.
        begin = event["ts"] - first[event["pid"], event["tid"]]
        end = begin + event["dur"]
        length_ns = round(event["dur"] * 1000)
        while open_slices and open_slices[-1][1] <= begin:
            open_slices.pop()
        name = event["name"]
        if argument:
            totals[name] += event["args"].get(argument, 0)
        else:
            totals[name] += length_ns
            if open_slices:
                totals[open_slices[-1][0]] -= length_ns
        assert begin < end, f"no length, so its end may come before its begin: {event}"
        assert not open_slices or end <= open_slices[-1][1], f"reaches out of its caller: {event}"
        open_slices.append((name, end))
    return {name: int(total) for name, total in totals.items() if total}


def fields(data):
    """The fields of a protobuf message: (number, value); value is an int or bytes."""
    at = 0

    def varint():
        nonlocal at
        result = shift = 0
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            length = varint()
            yield key >> 3, data[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {key & 7}")


def numbers(value):
    """A packed or single number of a repeated field."""
    if isinstance(value, int):
        return [value]
    return [number for _, number in fields_of_packed(value)]


def fields_of_packed(data):
    at = 0
    while at < len(data):
        result = shift = 0
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield None, result


def pprof(path, amount="wall"):
    strings, types, samples, locations, functions, mappings = [], [], [], {}, {}, {}
    for number, value in fields(gzip.open(path).read()):
        if number == 1:
            types.append(dict(fields(value))[1])
        elif number == 2:
            sample = collections.defaultdict(list)
            for key, item in fields(value):
                if key in (1, 2):
                    sample[key] += numbers(item)
            samples.append(sample)
        elif number == 3:
            mapping = dict(fields(value))
            mappings[mapping[1]] = mapping
        elif number == 4:
            location = collections.defaultdict(list)
            for key, item in fields(value):
                location[key].append(item)
            locations[location[1][0]] = location
        elif number == 5:
            function = dict(fields(value))
            functions[function[1]] = function
        elif number == 6:
            strings.append(value.decode())
    assert strings[0] == ""
    column = [strings[name] for name in types].index(amount)
    for location in locations.values():
        for mapping in location[2]:
            if mapping:
                start, limit = mappings[mapping][2], mappings[mapping][3]
                assert start <= location[3][0] < limit, "an address outside its mapping"
    totals = collections.Counter()
    for sample in samples:
        assert len(sample[2]) == len(types)
        leaf = locations[sample[1][0]]
        line = dict(fields(leaf[4][0]))
        totals[strings[functions[line[1]][2]]] += sample[2][column]
    return totals


def flamegraph_svg(path):
    root = ElementTree.parse(path).getroot()
    namespace = "{http://www.w3.org/2000/svg}"
    boxes = []
    for group in root.iter(namespace + "g"):
        if group.get("class") != "f":
            continue
        title = re.fullmatch(r"(.*) \([^()]*%\)", group.find(namespace + "title").text, re.S)[1]
        boxes.append((int(group.get("data-d")), int(group.get("data-x")), int(group.get("data-w")), title))
    # The deepest box over a place owns it.
    boxes.sort()
    assert boxes[0][:3] == (0, 0, int(root.get("data-total")))
    rows = collections.defaultdict(list)
    for depth, left, width, name in boxes:
        rows[depth].append((left, width, name))
    totals = collections.Counter()
    for depth, row in rows.items():
        end = 0
        for left, width, name in row:
            assert left >= end, "boxes overlap"
            end = left + width
            children = [box for box in rows.get(depth + 1, []) if left <= box[0] < left + width]
            assert all(box[0] + box[1] <= end for box in children), "a child is wider than its parent"
            totals[name] += width - sum(box[1] for box in children)
    return totals


READERS = {
    "folded": folded,
    "speedscope": speedscope,
    "firefox": firefox,
    "chrome": chrome,
    "pprof": pprof,
    "flamegraph-svg": flamegraph_svg,
}

if __name__ == "__main__":
    totals = READERS[sys.argv[1]](*sys.argv[2:])
    json.dump({name: int(total) for name, total in sorted(totals.items()) if total}, sys.stdout)
    print()
