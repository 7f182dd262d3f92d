#!/usr/bin/env python3
"""Wraps text at 110 columns: comments of Rust files, and documents. rustfmt leaves both alone.

    scripts/wrap.py [--check] [FILE…]        default: all that git knows

A paragraph or list item with a longer line is put into lines anew; others stay as they are, and so do tables, headings,
code, and lines with several spaces in a row. With --check nothing is written: exit status 1 and the places if there are any.
"""

import argparse
import os
import re
import subprocess
import sys

WIDTH = 110
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMENT = re.compile(r"^(\s*)(///|//!|//)(?![/!])( ?)(.*)$")
ITEM = re.compile(r"^(\s*(?:[-*+]|\d+\.) )(.*)$")
# What would be something else at the begin of a line.
STUCK = re.compile(r"^(?:[-+*=>|#]+|\d+\.|//+!?)$|^[#|>]")


def is_fixed(line):
    """Not a line of a paragraph."""
    text = line.strip()
    return not text or text.startswith(("#", "|", ">", "```", "![", "<")) or re.search(r"\S {3,}\S", text)


def words_of(lines):
    words = []
    for word in " ".join(lines).split():
        if words and STUCK.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def flowed(words, first, rest):
    lines, line = [], first
    is_empty = True
    for word in words:
        if not is_empty and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line, is_empty = rest, True
        line += word if is_empty else " " + word
        is_empty = False
    return [*lines, line]


def wrapped(lines, before):
    """These lines, each of which stands behind `before`, and the numbers of those that were too long."""
    out, long, at, in_code = [], [], 0, False
    while at < len(lines):
        begin, line = at, lines[at]
        at += 1
        if line.strip().startswith("```"):
            in_code = not in_code
        item = ITEM.match(line)
        if in_code or is_fixed(line) or (not item and line.startswith("    ")):
            out.append(line)
            continue
        lead = item.group(1) if item else re.match(r"\s*", line).group()
        indent = " " * len(lead)
        while at < len(lines) and not is_fixed(lines[at]) and not ITEM.match(lines[at]):
            if len(lines[at]) - len(lines[at].lstrip()) != len(indent):
                break
            at += 1
        paragraph = lines[begin:at]
        if all(len(before + line) <= WIDTH for line in paragraph):
            out += paragraph
            continue
        text = [item.group(2) if item else line, *paragraph[1:]]
        new = [line[len(before) :] for line in flowed(words_of(text), before + lead, before + indent)]
        if new != paragraph:
            long.append(begin)
        out += new
    return out, long


def wrap(path, lines):
    """The lines of a file as they should be, and the numbers of those that are too long."""
    if path.endswith(".md"):
        return wrapped(lines, "")
    out, long, at = [], [], 0
    while at < len(lines):
        begin, comment = at, COMMENT.match(lines[at])
        if not comment:
            out.append(lines[at])
            at += 1
            continue
        start = comment.group(1, 2)
        block = []
        while at < len(lines) and (comment := COMMENT.match(lines[at])) and comment.group(1, 2) == start:
            block.append(comment.group(4) if comment.group(3) or not comment.group(4) else None)
            at += 1
        if None in block:
            out += lines[begin:at]
            continue
        before = "".join(start) + " "
        block, found = wrapped(block, before)
        long += [begin + number for number in found]
        out += [(before + line).rstrip() for line in block]
    return out, long


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    listed = ["git", "-c", "safe.directory=*", "ls-files", "*.rs", "*.md"]
    files = options.files or subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    found = 0
    for name in files:
        path = os.path.join(ROOT, name) if not options.files else name
        # Outputs that tests compare with, what a compiler wrote, and files that are gone.
        if "/golden/" in name or "/generated/" in name or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        lines, long = wrap(name, text.split("\n"))
        found += len(long)
        if options.check:
            for number in long:
                print(f"{name}:{number + 1}: text beyond column {WIDTH}: scripts/wrap.py puts it into lines")
        elif long:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines))
    sys.exit(1 if options.check and found else 0)


if __name__ == "__main__":
    main()
