"""Run folders of `gradwire train`, for the scripts here: load(FOLDER) is run.json with the arrays of history.jsonl in it."""
import json
import pathlib


def load(folder):
    folder = pathlib.Path(folder)
    run = json.loads((folder / "run.json").read_text())
    if run["format"] == "gradwire.run/1":
        return run
    run.update(steps=[], tests=[], samples=[])
    for line in (folder / "history.jsonl").read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # else a crash tore it
            [(kind, record)] = json.loads(line).items()
            run.setdefault(kind, []).append(record)
    return run
