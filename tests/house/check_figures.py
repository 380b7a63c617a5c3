#!/usr/bin/env python3
"""Law 12, a claim carries its command: check_figures.py [--control]

In README.md every block with a measured figure has a command in itself or in one of the two blocks around it. In docs/
every table of measured figures has a command in its section. A command names something that this repository has: a
target of the Makefile, a script, a test or a program; a script or test that is named anywhere exists. --control plants faults: around each block with figures it
replaces the commands by others that do not exist, and it adds figures of its own.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?:-\d+(?:\.\d+)?)?%?")
# A number with a unit of time, size, speed or ratio. Rates of links are settings, not results.
FIGURE = re.compile(r"(?<![\w.=:-])\d+(?:[.,]\d+)*(?: to \d+(?:\.\d+)?)?\s?(?:ms|µs|s|seconds|minutes|MB|GB|GB/s|MB/s|×|%|times)(?![\w/=-])")
COMMAND = re.compile(r"(?:make [a-z][\w-]*|(?:gradwire|gradwire-mpi) [a-z]+|ctest [-\w]+|"
                     r"(?:build/\w+/)?(?:bench|tests|scripts|examples)/[\w./-]+\w)")
VERBS = set(re.findall(r'\{"([a-z]+)",', (ROOT / "cli" / "main.c").read_text()))
PROGRAMS = {name for page in ROOT.glob("*/CMakeLists.txt") for name in re.findall(r"add_executable\((\w+)", page.read_text())}
TESTS = (ROOT / "tests" / "CMakeLists.txt").read_text()
PROGRAMS |= {"test_" + name.replace("/", "_") for name in re.findall(r"gw_test\(([\w/]+)", TESTS)}


def blocks(text):
    """(line, section, text): a fenced block, a table or a paragraph."""
    block, begun, section, fence = [], 0, 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence ^= line.startswith("```")
        if line.startswith("#") and not fence:
            section += line.startswith("## ")
        elif line.strip() or fence:
            begun = begun if block else number
            block.append(line)
        if block and not fence and (not line.strip() or line.startswith("#")):
            yield begun, section, "\n".join(block)
            block = []


def is_table(block):
    return block.startswith(("|", "```", "    "))


def measures(block):
    """Whether a block holds results: many numbers in columns, or a number with a unit of what is measured."""
    if block.startswith("| offset"): # bytes of a format
        return False
    if not is_table(block):
        return bool(FIGURE.search(block))
    rows = [re.split(r"\s*\|\s*|\s{2,}", row.strip("| ")) for row in block.splitlines()]
    return sum(sum(bool(NUMBER.fullmatch(cell.strip(" *~"))) for cell in row) >= 2 for row in rows) >= 2


def exists(command, makefile):
    if command.startswith("make "):
        return re.search(rf"^{command[5:]}:", makefile, re.M) is not None
    if command.startswith("gradwire"):
        return command.split()[1] in VERBS
    if command.startswith("ctest"):
        return True
    if command.startswith("build/"):
        return command.rpartition("/")[2] in PROGRAMS
    return (ROOT / command).exists()


def commands(block, makefile):
    return [c for c in COMMAND.findall(block) if exists(c, makefile)]


def faults_of(name, text, near, makefile):
    found = list(blocks(text))
    for command in COMMAND.findall(text):
        if re.match("(build|bench|tests|scripts)/", command) and not exists(command, makefile):
            yield f"{name} names {command}, which this repository does not have"
    for i, (line, section, block) in enumerate(found):
        if not measures(block) or (near is None and not is_table(block)):
            continue
        around = found if near is None else found[max(i - near, 0):i + near + 1]
        if not any(commands(other, makefile) for _, where, other in around if where == section):
            yield f"{name}:{line}: figures without a command that this repository has: {block.strip().splitlines()[0][:100]}"


def control(readme, makefile):
    found = list(blocks(readme))
    measured = [i for i, (_, _, block) in enumerate(found) if measures(block)]
    assert measured, "README.md has no figures"
    for i in measured:
        text = readme
        for _, _, block in found[max(i - 1, 0):i + 2]:
            text = text.replace(block, COMMAND.sub("bench/no_such_script.sh", block))
        assert any("without a command" in f for f in faults_of("README.md", text, 1, makefile)), found[i]
    for planted in ("It is 3.5 times as fast.", "Encoding runs at 21.3 GB/s.", "```\nspec  a  b\nx  1.5  2.5\ny  3  4\n```",
                    "Run `bench/no_such_script.sh`."):
        assert list(faults_of("README.md", f"{readme}\n## Planted\n\n{planted}\n", 1, makefile)), planted
    print(f"{len(measured)} blocks of figures: without its command each is a fault")


def main():
    makefile = (ROOT / "Makefile").read_text()
    readme = (ROOT / "README.md").read_text()
    if "--control" in sys.argv:
        control(readme, makefile)
        return
    faults = list(faults_of("README.md", readme, 1, makefile))
    pages = sorted(ROOT.glob("docs/*.md"))
    for page in pages:
        faults += faults_of(f"docs/{page.name}", page.read_text(), None, makefile)
    assert not faults, "\n".join(faults)
    print(f"README.md and {len(pages)} pages: every table of figures has its command")


if __name__ == "__main__":
    main()
