#!/usr/bin/env python3
"""The docs know every codec, every parameter and every command: check_docs.py GRADWIRE"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    gradwire = sys.argv[1]
    codecs = json.loads(run(gradwire, "codec", "list", "--json"))
    pages = {name: (ROOT / "docs" / name).read_text() for name in ("codecs.md", "wire-format.md")}
    faults = []
    for codec in codecs:
        for name, text in pages.items():
            if f"`{codec['name']}`" not in text:
                faults.append(f"docs/{name} does not know {codec['name']}")
        if not re.search(rf"^\| {codec['id']} \| `{codec['name']}` \|", pages["wire-format.md"], re.M):
            faults.append(f"docs/wire-format.md: no row for id {codec['id']}, {codec['name']}")
        section = re.search(rf"^## `{codec['name']}`$(.*?)(?=^## |\Z)", pages["codecs.md"], re.M | re.S)
        for param in codec["params"]:
            if not section or f"`{param['name']}" not in section.group(1):
                faults.append(f"docs/codecs.md: {codec['name']} without its parameter {param['name']}")
    shown = (ROOT / "docs" / "commands.md").read_text()
    for command in re.findall(r"^  ([a-z]+) ", run(gradwire, "--help").split("commands:")[1].split("options:")[0], re.M):
        text = run(gradwire, command, "--help")
        if "example" not in text.lower():
            faults.append(f"gradwire {command} --help has no example")
        if command != "help" and f"gradwire {command}" not in shown:
            faults.append(f"docs/commands.md does not show gradwire {command}")
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md", ROOT / "src" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                faults.append(f"{page.relative_to(ROOT)} links to {target}, which is not there")
    assert not faults, "\n".join(faults)
    print(f"{len(codecs)} codecs, their parameters, and all commands are documented")


if __name__ == "__main__":
    main()
