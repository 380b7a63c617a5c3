#!/usr/bin/env python3
"""`gradwire train --resume RUN --missing drop`: check_lost.py CASE GRADWIRE [GRADWIRE_MPI]

Cases: threads, mpi.
"""

import json
import math
import os
import re
import shutil
import signal
import struct
import sys

import run_oracle
from check_train import GRADWIRE, MPI, STEPS, assert_same_end, command, kill_at_file, kill_at_line, launcher, main, run


def case_threads(work, images):
    """A rank's files are gone with its disk: refused, by name, unless the run may go on without its residuals."""
    stopped = {}
    for spec in ("adacomp", "lowrank:rank=2", "adapt:period=10,metric=relative/topk:density=0.05"):
        name = spec.split(":")[0]
        folder = stopped[name] = work / name
        line = command(images, "-c", spec, "--steps", STEPS, "--checkpoint", 0, "--latency", "3ms", "--out", folder)
        kill_at_line(changed(line, "--ranks", 3), 6, signal.SIGINT)
        again = copy(folder, "again")
        checkpoint = again / run_oracle.checkpoints(again)[0]
        (checkpoint / "rank-1.residuals").unlink()
        said = run(GRADWIRE, "train", "--resume", again, status=1).stderr
        assert f"{checkpoint.name}: the residuals of rank 1 of 3 are missing" in said and "--missing drop" in said, said
        if name == "adapt":
            (checkpoint / "rank-1.levels").unlink()
        run(GRADWIRE, "train", "--resume", again, "--missing", "error", status=1)
        norms = [norm_of((checkpoint / f"rank-{r}.residuals").read_bytes()) for r in (0, 2)]
        step = int(checkpoint.name[-6:]) + 1
        said = run(GRADWIRE, "train", "--resume", again, "--missing", "drop").stderr
        lines = [line for line in said.splitlines() if "lost" in line]
        found = re.fullmatch(r"gradwire: the residuals of rank 1 of 3 are lost and begin at zero; those of the 2 surviving ranks are (\S+) times a "
                             r"gradient \(norms: residuals (\S+), root mean square over ranks; gradient (\S+), rank 0's own of "
                             rf"step {step}, before compression\)", "\n".join(lines))
        assert found, said
        ratio, residuals, gradient = map(float, found.groups())
        wanted = math.sqrt(sum(norm * norm for norm in norms) / 2)
        assert abs(residuals / wanted - 1) < 1e-3 and abs(ratio * gradient / residuals - 1) < 1e-2, (found.groups(), wanted)
        one = run_oracle.check(again)
        assert one["state"] == "finished" and len(one["steps"]) == STEPS
        # the survivors' residuals came along: without them the run goes another way; and with all of them as if nothing had happened
        none = copy(folder, "none")
        for r in range(3):
            (none / checkpoint.name / f"rank-{r}.residuals").unlink()
        said = run(GRADWIRE, "train", "--resume", none, "--missing", "drop").stderr
        assert "the residuals of ranks 0, 1 and 2 of 3 are lost and begin at zero\n" in said, said
        whole, plain = copy(folder, "whole"), copy(folder, "plain")
        assert "lost" not in run(GRADWIRE, "train", "--resume", whole, "--missing", "drop").stderr
        run(GRADWIRE, "train", "--resume", plain)
        assert_same_end(whole, plain)
        weights = {(f / f"checkpoint-{STEPS:06d}" / "weights.gw").read_bytes() for f in (again, none, whole)}
        assert len(weights) == 3, f"{spec}: what was lost made no difference"
    # what is there and damaged is not lost
    damaged = copy(stopped["adacomp"], "damaged")
    file = damaged / run_oracle.checkpoints(damaged)[0] / "rank-1.residuals"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    said = run(GRADWIRE, "train", "--resume", damaged, "--missing", "drop", status=1).stderr
    assert "rank-1.residuals: " in said and "the checkpoint's checksum does not match" in said and "remove the file" in said, said
    levels = copy(stopped["adapt"], "levels")
    (levels / run_oracle.checkpoints(levels)[0] / "rank-2.levels").unlink()
    said = run(GRADWIRE, "train", "--resume", levels, status=1).stderr
    assert "the levels of rank 2 of 3 are missing; --missing drop" in said, said
    for more in (["--missing", "drop"], ["--resume", damaged, "--missing", "skip"]):
        assert "--missing is of --resume" in run(GRADWIRE, "train", *more, status=2).stderr
    check_gradient(work, images)


def changed(line, option, value):
    at = line.index(option) + 1
    return [*line[:at], value, *line[at + 1:]]


def copy(folder, name):
    to = folder.with_name(f"{folder.name}-{name}")
    shutil.copytree(folder, to)
    return to


def norm_of(blob):
    """Of a checkpoint of residuals, as docs/feedback.md has it: all numbers but those of copies."""
    directory, tensors = struct.unpack_from("<Q", blob, 24)[0], struct.unpack_from("<I", blob, 32)[0]
    at, numbers, squares = 64, directory, 0.0
    for _ in range(tensors):
        name_bytes, records = struct.unpack_from("<II", blob, at + 8)
        for i in range(records):
            kind, point, _, count = struct.unpack_from("<IIQQ", blob, at + 16 + 24 * i)
            if kind == 2 or point < 1 << 31:
                squares += sum(x * x for x in struct.unpack_from(f"<{count}f", blob, numbers))
            numbers += (4 * count + 7) // 8 * 8
        at += (16 + 24 * records + name_bytes + 7) // 8 * 8
    assert at == directory and numbers == len(blob), "not what docs/feedback.md says"
    return math.sqrt(squares)


def weights_of(folder, work):
    """All weights of the newest checkpoint, by name."""
    run(GRADWIRE, "decode", folder / run_oracle.checkpoints(folder)[0] / "weights.gw", "-o", work / "weights.safetensors")
    content = (work / "weights.safetensors").read_bytes()
    size = struct.unpack_from("<Q", content)[0]
    found = {}
    for name, about in json.loads(content[8:8 + size]).items():
        if name.endswith((".weight", ".bias")):
            begin, end = about["data_offsets"]
            found[name] = struct.unpack_from(f"<{(end - begin) // 4}f", content, 8 + size + begin)
    return found


def check_gradient(work, images):
    """The gradient of the line is one rank's. Plain descent shows the mean of two, which is no larger, and on large batches not much smaller."""
    rate, folder = 0.5, work / "descent"
    plain = command(images, "-c", "cast:to=f32", "--steps", 1, "--rate", rate, "--momentum", 0, "--decay", 0, "--warmup", 0, "--schedule", "constant",
                    "--checkpoint", 0, "--latency", "50ms", "--out", folder)
    kill_at_file(changed(plain, "--batch", 256), "checkpoint-000000", folder)
    before = weights_of(folder, work)
    (folder / "checkpoint-000000" / "rank-1.residuals").unlink()
    said = run(GRADWIRE, "train", "--resume", folder, "--missing", "drop").stderr
    gradient = float(re.search(r"gradient (\S+), rank 0's own of step 1,", said).group(1))
    after = weights_of(folder, work)
    mean = math.sqrt(sum((a - b) ** 2 for name in before for a, b in zip(before[name], after[name]))) / rate
    assert len(before) == 6 and 1 <= gradient / mean < 1.5, (gradient, mean)


def case_mpi(work, images):
    """Processes come to the very bytes that threads come to, and rank 0 prints the line, once."""
    start_ranks = launcher(MPI)
    if not start_ranks:
        print("skip: no launcher for", MPI)
        sys.exit(77)
    folder = work / "threads"
    kill_at_line(command(images, "-c", "adacomp", "--steps", STEPS, "--checkpoint", 0, "--ranks-per-node", 2, "--out", folder), 6,
                 signal.SIGINT)
    name = run_oracle.checkpoints(folder)[0]
    processes = copy(folder, "mpi")
    for file in (processes / "run.json", processes / name / "checkpoint.json"):
        text = file.read_text()
        assert text.count('"threads"') == 1, text
        file.write_text(text.replace('"threads"', '"mpi"'))
    for at in (folder, processes):
        (at / name / "rank-1.residuals").unlink()
    said = run(GRADWIRE, "train", "--resume", folder, "--missing", "drop").stderr
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")  # leaks are MPI's own
    line = [*start_ranks, "-n", "2", MPI, "train", "--resume", processes]
    run(*line, status=1, env=environment)
    of_mpi = run(*line, "--missing", "drop", env=environment).stderr
    found = [[line for line in text.splitlines() if "lost" in line] for text in (said, of_mpi)]
    assert len(found[0]) == 1 and found[0] == found[1], found
    assert_same_end(folder, processes)


if __name__ == "__main__":
    main(globals())
