"""The results of the experiment as tables."""
import statistics

from kinds import GROUPS, KINDS, SIZES
from special import CASES


def is_right(answer, kind):
    """Whether the first finding has the cause and the function that were changed."""
    first = answer["findings"][0] if answer["findings"] else None
    if first is None:
        return False, False
    named = [first["function"] or "", first["deepest"] or ""] + first["path"][-1:]
    matches = lambda f, name: name == f[1:] if f.startswith("=") else f in name
    function = not kind.functions or any(matches(f, name) for f in kind.functions for name in named)
    return first["cause"] in kind.causes, function


def table(head, rows):
    align = ["---"] + ["--:"] * (len(head) - 1)
    lines = [head, align] + rows
    return "".join("| " + " | ".join(str(c) for c in line) + " |\n" for line in lines)


def tables(lines):
    parts = ["### Unchanged programs\n", unchanged(lines), false_alarms(lines), "### Changes\n"]
    parts += [by_size(lines, half) for half in GROUPS if of(lines, what="changed", half=half)]
    parts += [by_kind(lines), "### Special cases\n", special(lines), "### First findings\n", detail(lines)]
    return "\n".join(parts)


def of(lines, **wanted):
    return [
        line for line in lines
        if all(line["about"].get(key) == value for key, value in wanted.items())
    ]


def verdicts(lines, verdict):
    return sum(line["answer"]["verdict"] == verdict for line in lines)


def unchanged(lines):
    asked = of(lines, what="unchanged")
    rows = []
    for program in sorted({line["about"]["program"] for line in asked}) + [None]:
        mine = of(asked, program=program) if program else asked
        blocks = {(line["about"]["kind"], line["about"]["replicate"]) for line in mine}
        rows.append([program or "all", len(blocks), len(mine), verdicts(mine, "regression"),
                     verdicts(mine, "cannot-tell")])
    return table(["unchanged program", "blocks", "gates", "false alarms", "cannot tell"], rows)


def false_alarms(lines):
    wrong = [line for line in of(lines, what="unchanged") if line["answer"]["verdict"] == "regression"]
    said = lambda line: "- %s, split %d: %s\n" % (
        line["about"]["kind"], line["about"]["split"], line["answer"]["findings"][0]["headline"])
    return "".join(said(line) for line in wrong)


def by_size(lines, half):
    kinds = {kind.key: kind for kind in KINDS}
    rows = []
    for size in SIZES:
        mine = of(lines, what="changed", half=half, size=size)
        if not mine:
            continue
        found = [line for line in mine if line["answer"]["verdict"] == "regression"]
        right = [is_right(line["answer"], kinds[line["about"]["kind"]]) for line in found]
        share = lambda count, all: "%d of %d (%.0f %%)" % (count, all, 100 * count / max(all, 1))
        rows.append(["%g %%" % (100 * size), share(len(found), len(mine)),
                     share(sum(c for c, _ in right), len(found)),
                     share(sum(f for _, f in right), len(found))])
    return table([half, "found", "cause right", "function right"], rows)


def by_kind(lines):
    rows = []
    for kind in KINDS:
        mine = of(lines, what="changed", kind=kind.key)
        if not mine:
            continue
        row = [kind.program, kind.name, kind.half]
        for size in SIZES:
            sized = of(mine, size=size)
            row.append("%d of %d" % (verdicts(sized, "regression"), len(sized)) if sized else "-")
        # What 5 % measured.
        for metric in ("wall", "cpu"):
            measured = [line["answer"]["whole"][metric]["relative"] for line in of(mine, size=0.05)]
            row.append("%+.1f %%" % (100 * statistics.mean(measured)) if measured else "-")
        found = [line for line in mine if line["answer"]["verdict"] == "regression"]
        right = [is_right(line["answer"], kind) for line in found]
        row += ["%d of %d" % (sum(c for c, _ in right), len(found)),
                "%d of %d" % (sum(f for _, f in right), len(found)) if kind.functions else "-"]
        rows.append(row)
    head = ["program", "change", "group", "2 %", "5 %", "10 %", "20 %", "wall at 5 %", "CPU at 5 %", "cause right",
            "function right"]
    return table(head, rows)


def special(lines):
    rows = []
    for case in CASES:
        mine = of(lines, what="special", case=case.name)
        if mine:
            right = sum(case.is_right(line["answer"]) for line in mine)
            said = sorted({line["answer"]["verdict"] for line in mine})
            rows.append([case.name, case.expected, "%d of %d" % (right, len(mine)), ", ".join(said)])
    return table(["case", "right answer", "right", "verdicts"], rows)


def detail(lines):
    """One row a gate that is worth a look: missed at 5 % and more, or wrongly explained."""
    kinds = {kind.key: kind for kind in KINDS}
    rows = []
    for line in of(lines, what="changed"):
        about, answer = line["about"], line["answer"]
        cause, function = is_right(answer, kinds[about["kind"]])
        missed = answer["verdict"] != "regression" and about["size"] >= 0.05
        if not missed and (not answer["findings"] or cause and function):
            continue
        first = answer["findings"][0] if answer["findings"] else {}
        wall = answer["whole"]["wall"]
        rows.append([about["kind"], "%g" % about["size"], about["replicate"], answer["verdict"],
                     "%+.1f %% (fence %.1f %%)" % (100 * wall["relative"], 100 * (wall["fence"] or 0)),
                     first.get("cause", ""), first.get("function", ""), first.get("headline", "")])
    head = ["kind", "size", "block", "verdict", "wall", "cause", "function", "first finding"]
    return table(head, rows)
