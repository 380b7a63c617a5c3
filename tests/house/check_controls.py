#!/usr/bin/env python3
"""Each law's test can fail: check_controls.py BUILD SOURCE

Plants one fault at a time in a copy of a source file, links the law's test with it in place of the library's own
object, and expects red. Only the copy is compiled, with the build's own commands. A fault whose text is no longer there
fails too: it has to move with the code.
"""

import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

# what goes wrong, file, text (there once), its replacement, test that must turn red, more replacements
FAULTS = [
    ("payloads summed in order of arrival", "src/coll/bundle.c", "x->payloads[i] = (gw_payload){payload, bytes};",
     "x->payloads[(i + x->config.rank) % b->payloads] = (gw_payload){payload, bytes};", "coll_routes"),
    ("numbers summed in order of arrival", "src/coll/dense.c",
     "        for (uint32_t i = 0; i < m->group.size; i++) {\n            const float *from =",
     "        for (uint32_t turn = 0; turn < m->group.size; turn++) {\n            const uint32_t i = (turn + m->group.member) % m->group.size;\n"
     "            const float *from =", "step_step", ("if (i == 0) {", "if (turn == 0) {")),
    ("a rank keeps its own exact sum", "src/coll/bundle.c", "        if (status == GW_OK && piece.count != 0) {",
     "        if (status == GW_OK && piece.count != 0 && (x->config.rank != 0 || b->payloads != 1)) {", "coll_routes"),
    ("residuals are reset", "src/coll/exchange.c", "gw_feedback_commit_checked(x->config.store, x->slot[i], NULL, why)",
     "gw_feedback_rollback(x->config.store, x->slot[i], why)", "coll_routes"),
    ("what is due is forgotten", "src/coll/additive.c", "    x->owes = x->due != NULL;", "    x->owes = 0;", "step_state"),
    ("what was loaded still owes", "src/coll/additive.c", "((gw_exchange *)exchange)->owes = 0;", "(void)exchange;", "step_state"),
    ("a rank does not see what is bad in its own sums", "src/coll/exchange.c", "return x->seen_bad || ", "return ", "step_step"),
    ("what vanished points held is dropped", "src/step/task.c",
     "gw_feedback_hand_over(s->store, l->store_tensor, values, 0, l->elements, why);",
     "gw_feedback_hand_over(s->store, l->store_tensor, values, 0, 0, why);", "step_state"),
    ("a non-finite step counts", "src/step/task.c", "status = bad ? gw_exchange_rollback(l->pieces[p], why)",
     "status = 0 ? gw_exchange_rollback(l->pieces[p], why)", "step_state"),
    ("a failed step counts", "src/step/run.c", "(void)gw_exchange_rollback(s->layers[i].pieces[p], NULL);",
     "(void)gw_exchange_commit(s->layers[i].pieces[p], NULL);", "step_faults"),
    ("a member of a convoy gets another's bytes", "src/comm/together.c", "memcpy(p->to, from, p->received);",
     "memcpy(p->to, t->receive + t->at[i], p->received);", "step_convoy"),
    ("ranks that put other messages together go unseen", "src/step/agree.c", "return hash;", "return 0 * hash;", "step_convoy"),
    ("ranks share a random key", "src/route/compile.c", "stream.rank = encode_move->owner;", "stream.rank = 0;", "step_step"),
    ("those who encode the same do it each their own way", "src/route/compile.c", "stream.rank = encode_move->owner;",
     "stream.rank = program->rank;", "coll_routes"),
    ("a length is not looked at", "src/coll/bundle.c", "if (size > most || (most != 0 && size < GW_SEAL_BYTES)) {",
     "if (most != 0 && size < GW_SEAL_BYTES) {", "step_faults"),
    ("a seal is not looked at", "src/coll/bundle.c", "if (gw_get_u64(payload + bytes) != seal_of(x, payload, bytes)) {",
     "if (0 && gw_get_u64(payload + bytes) != seal_of(x, payload, bytes)) {", "step_faults"),
    ("sums round as the caller does", "src/step/run.c", "const uint32_t caller = gw_fp_enter();",
     "const uint32_t caller = gw_fp_enter(); gw_fp_leave(caller);", "step_step"),
    ("a scale depends on the number of threads", "src/codec/adacomp.c", "total += all->stretches[0].runs[i];",
     "total += all->stretches[0].runs[i] + 1e-3 * parts;", "codec_threads"),
    ("candidates of a part are lost", "src/codec/topk.c", "for (unsigned i = 1; i < c->parts; i++) {",
     "for (unsigned i = 1; i + 1 < c->parts; i++) {", "codec_threads"),
    ("true errors are not looked at", "src/adapt/choose.c", "if (!(error <= s->budget)) {", "if (0) {", "adapt_choose"),
    ("choices depend on how the thread rounds", "src/adapt/choose.c", "    const uint32_t caller = gw_fp_enter();",
     "    const uint32_t caller = gw_fp_enter(); gw_fp_leave(caller);", "adapt_choose"),
    ("a rank that chose other levels goes unseen", "src/step/adapt.c",
     "if (theirs != first) {", "if (0 && theirs != first) {", "step_adapt"),
    ("levels are chosen of a rank's own table", "src/step/adapt.c", "sum += a->all[r * a->table + i];",
     "sum += a->own[i];", "step_adapt"),
    ("residuals that could stay are handed over", "src/coll/slots.c", "if (x->range[i].count != 0 && x->point[i] == before->point[j] &&",
     "if (0 && x->point[i] == before->point[j] &&", "step_adapt"),
    ("a switch forgets columns", "src/coll/slots.c", "memcpy(after, copy, shared * sizeof *copy);", "(void)shared;", "step_adapt"),
    ("each rank plans with the link as it saw it", "src/step/auto_cluster.c",
     "*seconds = fmax(u->probe_said[2 * (size_t)r], *seconds);", "*seconds = own[0];", "step_auto"),
    ("a burst of NaN stays compressed", "src/step/auto_watch.c", "if (w->bad >= BAD_STEPS) {", "if (0) {", "step_auto"),
    ("a rank that chose another plan goes unseen", "src/step/agree.c", "return differ ?", "return 0 && differ ?", "step_agree"),
    ("residuals are loaded before they have a place", "src/feedback/load.c", "if (store->ready != NULL && !*store->ready) {",
     "if (0 && store->ready != NULL) {", "step_state"),
    ("a timeout names no rank", "src/step/run.c", "gw_task_waits_for(s, &s->tasks[lane->task], what, size);",
     "(void)size;", "step_faults"),
]


def commands(build, target):
    return subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout


def compile_copy(build, source, path, text, folder):
    entry = next(e for e in json.loads((build / "compile_commands.json").read_text()) if e["file"] == str(source / path))
    words = shlex.split(entry["command"])
    copy, mutant = folder / pathlib.Path(path).name, folder / "mutant.o"
    copy.write_text(text)
    words[words.index(entry["file"])] = str(copy)
    words[words.index("-o") + 1] = str(mutant)
    subprocess.run([*words, "-w", "-I", str((source / path).parent)], check=True, cwd=entry["directory"])
    return mutant


def link(build, test, mutant, out):
    line = commands(build, f"tests/test_{test}").strip().splitlines()[-1]
    line = line.replace(f"-o tests/test_{test} ", f"{mutant} -o {out} ")
    assert str(out) in line, "no such link command"
    subprocess.run(line, shell=True, check=True, cwd=build)


def turns_red(build, source, fault, folder):
    _, path, old, new, test, *more = fault
    text = (source / path).read_text()
    for before, after in [(old, new), *more]:
        assert text.count(before) == 1, f"{path} no longer has the text once that a fault replaces:\n{before}"
        text = text.replace(before, after)
    mutant = compile_copy(build, source, path, text, folder)
    link(build, test, mutant, folder / "test")
    try:
        run = subprocess.run([folder / "test"], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    words = [line for line in run.stderr.splitlines() if ".c:" in line] or [f"exit {run.returncode}"]
    return words[0].rpartition("/")[2] if run.returncode != 0 else ""


def main():
    build, source = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    if not (build / "build.ninja").exists():
        print("skip: not a Ninja build")
        sys.exit(77)
    green = []
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS:
            red = turns_red(build, source, fault, pathlib.Path(folder))
            print(f"{fault[0]}: {red or 'NOT SEEN'} ({fault[4]})")
            green += [] if red else [fault[0]]
    assert not green, f"unseen: {green}"
    print(f"{len(FAULTS)} planted faults are seen")


if __name__ == "__main__":
    main()
