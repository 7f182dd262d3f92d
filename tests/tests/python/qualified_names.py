"""Prints all code of the sources below some folders, as JSON lines of one source each: its path, and of each
code object name, first line, last line and qualified name. From 3.11 on the interpreter says the last. Before,
it stands in the bytecode that makes the function, or in that of the class."""

import contextlib
import dis
import inspect
import json
import os
import sys
import types
import warnings


def lines(code):
    if hasattr(code, "co_lines"):
        return [line for _, _, line in code.co_lines() if line]
    return [line for _, line in dis.findlinestarts(code)]


def constants(code):
    """The constants that the instructions of old bytecode load, in order; None: another instruction."""
    loads, extended, argument = dis.opmap["LOAD_CONST"], dis.opmap["EXTENDED_ARG"], 0
    loaded = []
    for at in range(0, len(code.co_code), 2):
        operation = code.co_code[at]
        argument = argument << 8 | code.co_code[at + 1]
        if operation == extended:
            continue
        loaded.append(code.co_consts[argument] if operation == loads else None)
        argument = 0
    return loaded


def inner_code(code):
    """The code objects in one, with their qualified names."""
    if hasattr(code, "co_qualname"):
        inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        return [(constant, constant.co_qualname) for constant in inner]
    loaded = constants(code)
    # A class begins with `__module__ = __name__` and `__qualname__ = …`, a function is made of its code and name.
    pairs = [pair for pair in zip(loaded, loaded[1:]) if isinstance(pair[0], types.CodeType)]
    return [(inner, (class_name(inner) or name)) for inner, name in pairs]


def class_name(code):
    if "__qualname__" in code.co_names and not code.co_flags & inspect.CO_OPTIMIZED:
        return next(constant for constant in constants(code) if isinstance(constant, str))
    return None


def walk(code, found):
    for inner, name in inner_code(code):
        of_code = lines(inner) or [inner.co_firstlineno]
        found.append([inner.co_name, inner.co_firstlineno, min(of_code), max(of_code), name])
        walk(inner, found)


def all_code(file):
    """All code of a source but that of the module itself."""
    with open(file, "rb") as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    found = []
    walk(code, found)
    return found


KNOWN = {}


def qualified_name(code):
    """What a recording is to say of a function, by its source: the name without more where several functions of one
    name begin on a line."""
    if hasattr(code, "co_qualname"):
        return code.co_qualname
    names = KNOWN.get(code.co_filename)
    if names is None:
        names = {}
        for name, line, _, _, qualified in all_code(code.co_filename) if os.path.isabs(code.co_filename) else []:
            names.setdefault((name, line), set()).add(qualified)
        KNOWN[code.co_filename] = names
    found = names.get((code.co_name, code.co_firstlineno), ())
    return next(iter(found)) if len(found) == 1 else code.co_name


def main():
    warnings.simplefilter("ignore")
    for folder in sys.argv[1:]:
        for path, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.endswith("-packages"))
            for file in sorted(files):
                file = os.path.join(path, file)
                # Among the tests are sources that are none.
                with contextlib.suppress(OSError, SyntaxError, ValueError):
                    if file.endswith(".py"):
                        print(json.dumps([file, all_code(file)]))


if __name__ == "__main__":
    main()
