"""Differences between two sides that are no plain slowdown, and what the right answer is."""
from dataclasses import dataclass
from typing import Callable


def not_a_regression(answer):
    return answer["verdict"] != "regression"


def is_faster(answer):
    lower = any(answer["whole"][m]["answer"] == "lower" for m in ("wall", "cpu"))
    return answer["verdict"] != "regression" and lower


def is_found_in(*functions):
    def is_right(answer):
        first = answer["findings"][0] if answer["findings"] else {}
        named = [first.get("function") or "", first.get("deepest") or ""]
        return any(f in name for f in functions for name in named)

    return is_right


def says_other_arguments(answer):
    return answer["verdict"] == "regression" and any("arguments" in w for w in answer["warnings"])


@dataclass(frozen=True)
class Case:
    name: str
    program: str
    # Kind and amount of each side.
    baseline: tuple
    candidate: tuple
    expected: str
    is_right: Callable
    # Amounts are shares of the run (0.2), turned into those of this kind.
    amount_of: str = ""


CASES = [
    Case("faster", "python", ("cpu-loop", 0.2), ("none", 0), "no regression, CPU or wall time lower",
         is_faster, "python-cpu-loop"),
    Case("moved-to-main-thread", "press", ("none", 0), ("moved", 0), "no regression", not_a_regression),
    Case("moved-to-new-thread", "python", ("none", 0), ("moved", 110), "no regression", not_a_regression),
    Case("renamed", "press", ("none", 0), ("renamed", 0), "no regression", not_a_regression),
    Case("renamed-and-slower", "press", ("renamed", 0), ("lock-held-longer", 0.2),
         "a regression in proof_letters or borrow", is_found_in("proof_letters", "borrow"),
         "press-lock-held-longer"),
    Case("faster-server", "redis", ("keys-pattern", 0.2), ("none", 0), "no regression, CPU or wall time lower",
         is_faster, "redis-keys-pattern"),
    Case("other-input-perl", "perl", ("none", 0), ("more-input", 0.25),
         "a regression, and a warning that arguments differ", says_other_arguments),
    Case("other-input", "press", ("none", 0), ("more-input", 0.25),
         "a regression, and a warning that arguments differ", says_other_arguments),
]
