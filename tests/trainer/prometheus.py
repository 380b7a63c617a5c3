#!/usr/bin/env python3
"""A strict reader of the Prometheus text format, as far as gradwire writes it: prometheus.py FILE

read(text) returns {(name, ((label, value), ...)): number} and raises AssertionError with line and reason. Strict means: every family has one
HELP and one TYPE before its samples, families are not mixed, no sample twice, label values escape nothing but \\, " and newline.
"""

import pathlib
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
NUMBER = re.compile(r"NaN|[+-]Inf|-?\d+(\.\d+)?([eE][+-]?\d+)?")


def labels(text, line):
    found, at = [], 0
    while at < len(text):
        one = LABEL.match(text, at)
        assert one, f"{line}: labels at {text[at:]!r}"
        value = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], one[2])
        found.append((one[1], value))
        at = one.end()
        assert one[3] == "," or at == len(text), line
    assert not text.endswith(","), f"{line}: a comma too many"
    assert len({name for name, _ in found}) == len(found), f"{line}: a label twice"
    return tuple(found)


def read(text):
    assert text.endswith("\n") and "\r" not in text, "the last line has no end"
    helps, types, samples, family = {}, {}, {}, None
    for line in text[:-1].split("\n"):
        head = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line)
        if head:
            kind, name, rest = head.groups()
            known = helps if kind == "HELP" else types
            assert name not in known, f"{line}: a second time"
            known[name] = rest
            if kind == "TYPE":
                assert rest in ("counter", "gauge") and (rest == "counter") == name.endswith("_total"), line
                assert name in helps, f"{line}: no HELP before it"
                family = name
            continue
        sample = re.fullmatch(rf"({NAME})\{{(.*)\}} (\S+)", line)
        assert sample and NUMBER.fullmatch(sample[3]), f"not a sample: {line!r}"
        assert sample[1] == family, f"{line}: among samples of {family}"
        key = sample[1], labels(sample[2], line)
        assert key not in samples, f"{line}: twice"
        samples[key] = float(sample[3])
        assert types[family] == "gauge" or samples[key] >= 0, line
    assert set(helps) == set(types) == {name for name, _ in samples}, "a family without samples, HELP or TYPE"
    return samples


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for (family, of), value in read(pathlib.Path(name).read_text()).items():
            print(family, dict(of), value)
