#!/usr/bin/env python3
"""Each law's test can fail: check_controls.py BUILD SOURCE [LAW | TEXT | --control]

Plants one fault at a time in a copy of a source file, links the law's test with it in place of the library's own
object, and expects red. Only the copy is compiled, with the build's own commands. A fault whose text is no longer there
fails too: it has to move with the code. LAW, a number, plants the faults of one law; TEXT those whose description
contains it. --control plants a fault that changes nothing, which must be reported as not seen.
"""

import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

# law, what goes wrong, file, text (there once), its replacement, test of this law that must turn red, more replacements
FAULTS = [
    (1, "payloads summed in order of arrival", "src/coll/bundle.c", "x->payloads[i] = (gw_payload){payload, bytes};",
     "x->payloads[(i + x->config.rank) % b->payloads] = (gw_payload){payload, bytes};", "coll_routes"),
    (1, "numbers summed in order of arrival", "src/coll/dense.c",
     "        for (uint32_t i = 0; i < m->group.size; i++) {\n            const uint8_t *from =",
     "        for (uint32_t turn = 0; turn < m->group.size; turn++) {\n            const uint32_t i = (turn + m->group.member) % m->group.size;\n"
     "            const uint8_t *from =", "step_step", ("if (i == 0) {", "if (turn == 0) {")),
    (1, "a rank keeps its own exact sum", "src/coll/bundle.c", "        if (status == GW_OK && piece.count != 0) {",
     "        if (status == GW_OK && piece.count != 0 && (x->config.rank != 0 || b->payloads != 1)) {", "coll_routes"),
    (2, "residuals are reset", "src/coll/slots.c", "gw_feedback_commit_checked(x->config.store, x->slot[i], NULL, why)",
     "gw_feedback_rollback(x->config.store, x->slot[i], why)", "coll_routes"),
    (2, "what is due is forgotten", "src/coll/additive.c", "    x->owes = x->due != NULL;", "    x->owes = 0;", "step_state"),
    (2, "what was loaded still owes", "src/coll/additive.c", "((gw_exchange *)exchange)->owes = 0;", "(void)exchange;", "step_state"),
    (4, "a rank does not see what is bad in its own sums", "src/coll/exchange_finish.c", "return x->seen_bad || ", "return ", "step_step"),
    (2, "what vanished points held is dropped", "src/step/gradients.c",
     "gw_feedback_hand_over(s->store, l->store_tensor, values, 0, l->elements, why);",
     "gw_feedback_hand_over(s->store, l->store_tensor, values, 0, 0, why);", "step_state"),
    (2, "what rounding to 16 bits takes off a residual is dropped", "src/feedback/hand_over_half.c", "after[i] = whole[i] - sent[i];",
     "after[i] = 0 * sent[i];", "step_half"),
    (4, "a mean that 16 bits do not have is not seen", "src/coll/exchange_finish.c", "return x->convert->narrow(x->dtype, from, to, n) >= gw_overflow_bits(x->dtype);",
     "return x->convert->narrow(x->dtype, from, to, n) >= GW_INF_BITS;", "step_half"),
    (4, "a non-finite step counts", "src/step/task.c", "status = bad ? gw_exchange_rollback(l->pieces[p], why)",
     "status = 0 ? gw_exchange_rollback(l->pieces[p], why)", "step_state"),
    (2, "a failed step counts", "src/step/step_fail.c", "(void)gw_exchange_rollback(s->layers[i].pieces[p], NULL);",
     "(void)gw_exchange_commit(s->layers[i].pieces[p], NULL);", "step_faults"),
    (1, "a member of a convoy gets another's bytes", "src/comm/together.c", "memcpy(p->to, from, p->received);",
     "memcpy(p->to, t->receive + t->at[i], p->received);", "step_convoy"),
    (9, "ranks that put other messages together go unseen", "src/step/agree.c", "return hash;", "return 0 * hash;", "step_convoy"),
    (1, "a rank without a piece takes one", "src/route/compile.c", "parts = parts_at(c, level);\n    if (pair", "parts = group_at(c, level).size;\n    if (pair", "route_program"),
    (3, "ranks share a random key", "src/route/operand.c", "stream.rank = encode_move->owner;", "stream.rank = 0;", "step_step"),
    (1, "those who encode the same do it each their own way", "src/route/operand.c", "stream.rank = encode_move->owner;",
     "stream.rank = program->rank;", "coll_routes"),
    (5, "a length is not looked at", "src/coll/bundle_lengths.c", "if (size > most || (most != 0 && size < x->seal_bytes)) {",
     "if (most != 0 && size < x->seal_bytes) {", "step_faults"),
    (7, "a seal is not looked at", "src/coll/bundle.c", "gw_get_u64(payload + bytes) != gw_bundle_seal_of(x, payload, bytes)) {",
     "0 * gw_get_u64(payload + bytes) != 0) {", "step_faults"),
    (7, "numbers are not compared with their seals", "src/coll/seals.c", "memcmp(said, found, GW_SEALS * sizeof *said) != 0) {",
     "memcmp(said, found, 0) != 0) {", "coll_seals"),
    (7, "a convoy's seal is not looked at", "src/comm/together.c",
     "if (bytes != 0 && gw_get_u64(from + bytes) != seal_of(t, from, bytes)) {",
     "if (0 && gw_get_u64(from + bytes) != seal_of(t, from, bytes)) {", "coll_seals"),
    (7, "a length's seal is not looked at", "src/coll/bundle_lengths.c",
     "length[1] != gw_bundle_seal_of(x, (const uint8_t *)length, sizeof *length)) {", "0 * length[1] != 0) {", "coll_seals"),
    (7, "messages of an agreement are not looked at", "src/comm/gather.c",
     "if (!sealed_below && gw_get_u64(from + bytes) != gw_hash(from, bytes, i)) {", "if (0 && !sealed_below) {", "coll_seals"),
    (9, "ranks with other buckets go unseen", "src/step/agree.c", "return all;", "return 0 * all;", "step_buckets"),
    (6, "a bucket of two codecs is run by the first", "src/step/fusion.c", "const int codec = gw_params_equal(&a->asked, &b->asked);",
     "const int codec = 1;", "step_buckets"),
    (2, "a layer leaves a bucket without its residual", "src/feedback/joined.c",
     "memcpy(part->r, whole->r + part->at, (size_t)part->count * sizeof *part->r);", "", "step_buckets"),
    (2, "what is loaded for a layer does not reach its bucket", "src/feedback/joined.c",
     "memcpy(part->whole->r + part->at, r, (size_t)count * sizeof *r);", "(void)r;", "step_buckets"),
    (2, "a bucket that goes on begins anew", "src/step/fusion.c", "if (g == NULL || g->pieces == NULL ||", "if (1 || g->pieces == NULL ||", "step_buckets"),
    (4, "of a coded bucket only one layer is bad", "src/step/fusion.c", "member(s, f, i)->bad |= f->spoilt;", "", "step_buckets"),
    (4, "a bad bucket counts", "src/step/fusion.c", "status = f->spoilt || none ?", "status = none ?", "step_buckets"),
    (1, "a bucket is put together in another order on each rank", "src/step/fusion.c", "s->fused[f->first + f->count++] = layer;",
     "s->fused[f->first + f->count++] = layer;\n    if (f->count == 2 && s->config.comm->rank == 1) {\n        "
     "s->fused[f->first + 1] = s->fused[f->first];\n        s->fused[f->first] = layer;\n    }", "step_buckets"),
    (7, "means that differ pass a comparison", "src/step/verify.c", "if (status == GW_OK && differ(s, s->verify.said + SAY_HASH, SAYS)) {",
     "if (0) {", "step_verify"),
    (7, "hashes of a checkpoint are not compared", "src/step/verify.c", "s->layers[i].hashes += means->hashes[s->layers[i].store_tensor];",
     "", "step_verify_load"),
    (3, "sums round as the caller does", "src/step/run.c", "const uint32_t caller = gw_fp_enter();",
     "const uint32_t caller = gw_fp_enter(); gw_fp_leave(caller);", "step_step"),
    (3, "a scale depends on the number of threads", "src/codec/adacomp/adacomp.c", "total += all->stretches[0].runs[i];",
     "total += all->stretches[0].runs[i] + 1e-3 * parts;", "codec_threads"),
    (3, "candidates of a part are lost", "src/codec/topk/topk.c", "for (unsigned i = 1; i < c->parts; i++) {",
     "for (unsigned i = 1; i + 1 < c->parts; i++) {", "codec_threads"),
    (6, "true errors are not looked at", "src/adapt/choose.c", "if (!(error <= s->budget)) {", "if (0) {", "adapt_choose"),
    (9, "choices depend on how the thread rounds", "src/adapt/choose.c", "    const uint32_t caller = gw_fp_enter();",
     "    const uint32_t caller = gw_fp_enter(); gw_fp_leave(caller);", "adapt_choose"),
    (9, "a rank that chose other levels goes unseen", "src/control/control_ranks.c",
     "if (theirs != first) {", "if (0 && theirs != first) {", "control_adapt"),
    (9, "levels are chosen of a rank's own table", "src/control/control_ranks.c", "sum += c->all[r * c->table + i];",
     "sum += c->own[i];", "control_adapt"),
    (2, "residuals that could stay are handed over", "src/coll/slots.c", "if (x->range[i].count != 0 && x->point[i] == before->point[j] &&",
     "if (0 && x->point[i] == before->point[j] &&", "control_adapt"),
    (2, "a switch forgets columns", "src/coll/slots.c", "memcpy(after, copy, shared * sizeof *copy);", "(void)shared;", "control_adapt"),
    (5, "an index is not looked at", "src/codec/topk/topk.c", "if (index >= count || index < least) {", "if (0 && index < least) {", "codec_topk"),
    (5, "an entry is not measured against its frame", "src/wire/frame.c", "if (bytes > header - at) {", "if (0) {", "wire_frame"),
    (6, "an unknown parameter is skipped", "src/codec/spec.c", "return gw_fail(why, GW_ERR_UNKNOWN, \"%s has no parameter '%s' (it has: %s)\", codec->name,",
     "return GW_OK; return gw_fail(why, GW_ERR_UNKNOWN, \"%s has no parameter '%s' (it has: %s)\", codec->name,", "codec_spec"),
    (6, "a plan for tensors of another size runs", "src/plan/match.c", "if (t->elements != m->elements[layer]) {", "if (0) {", "files_plan_file"),
    (6, "less memory is another plan", "src/plan/problem.c", "        return GW_FAIL(why, GW_ERR_MEMORY, \"no memory for a plan of %zu tensors\", job->n);\n"
     "    }\n    for (size_t i = 0; i < job->n; i++) {\n        sizes[i]", "        *out = job->n;\n        return GW_OK;\n    }\n"
     "    for (size_t i = 0; i < job->n; i++) {\n        sizes[i]", "plan_memory"),
    (6, "an allocation is not looked at", "src/step/prepare.c", "    if (l->pieces == NULL) {", "    if (0) {", "step_memory"),
    (6, "what a failed gather held stays allocated", "src/comm/threads.c", "        gw_comm_let_go(comm);\n", "", "step_memory"),
    (8, "encoding allocates", "src/codec/codec.c", "    gw_status status = gw_call_prepare(&c, params, exec, in, 1, &parts);",
     "    void *malloc(size_t);\n    void free(void *);\n    void *volatile more = malloc(8);\n    free(more);\n"
     "    gw_status status = gw_call_prepare(&c, params, exec, in, 1, &parts);", "codec_allocations"),
    (8, "a step allocates", "src/coll/exchange.c", "    x->values = values;\n",
     "    x->values = values;\n    void *volatile more = malloc(8);\n    free(more);\n", "step_steady"),
    (8, "a host's operations are allocated when they are posted", "src/comm/framework.c", "for (uint32_t i = made; i < wanted; i++) {",
     "for (uint32_t i = wanted; i < wanted; i++) {", "step_steady"),
    (8, "slots of threads are allocated when they are needed", "src/comm/threads_exchange.c", "for (int i = 0; i < GW_SLOTS_AT_ONCE; i++) {",
     "for (int i = 0; i < 0; i++) {", "step_steady"),
    (10, "the last plan is kept, not the best", "src/plan/search.c", "    if (s->line.makespan < best->makespan) {\n        best->makespan",
     "    if (1) {\n        best->makespan", "plan_search"),
    (9, "each rank plans with the link as it saw it", "src/control/auto_cluster.c",
     "*seconds = fmax(u->probe_said[2 * (size_t)r], *seconds);", "*seconds = own[0];", "control_auto"),
    (4, "a burst of NaN stays compressed", "src/control/auto_watch.c", "if (w->bad >= BAD_STEPS) {", "if (0) {", "control_auto"),
    (9, "a rank that chose another plan goes unseen", "src/step/agree.c", "return differ ?", "return 0 && differ ?", "step_agree"),
    (2, "copies stay although a rank that keeps one is lost", "src/feedback/load.c", "l->store->world && !l->some_lost;", "l->store->world;", "step_lost"),
    (2, "what ranks keep equal is dropped with a lost rank", "src/feedback/load.c", "(was_residual && (record->point & GW_FEEDBACK_COPY) != 0)) {",
     "(was_residual && (record->point & (GW_FEEDBACK_COPY | GW_FEEDBACK_SHARED)) != 0)) {", "step_lost"),
    (2, "of several checkpoints one counts", "src/feedback/load.c", "l->sources[found++] = theirs->records[j].numbers;",
     "l->sources[0] = theirs->records[j].numbers, found = 1;", "feedback_lost"),
    (5, "a frame decodes to any size", "src/wire/frame.c", "return expanded <= limit", "return expanded / 4 <= limit", "wire_frame"),
    (2, "residuals are loaded before they have a place", "src/feedback/load.c", "if (store->ready != NULL && !*store->ready) {",
     "if (0 && store->ready != NULL) {", "step_state"),
    (6, "a timeout names no rank", "src/step/step_fail.c", "gw_task_waits_for(s, &s->tasks[lane->task], what, size);",
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
    _, _, path, old, new, test, *more = fault
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


NOTHING = (11, "nothing changes", "src/adapt/choose.c", "if (!(error <= s->budget)) {", "if (!(s->budget >= error)) {", "adapt_choose")


def chosen(words):
    return [f for f in FAULTS if words in ("", str(f[0])) or (not words.isdigit() and words in f[1])]


def main():
    build, source = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    words = sys.argv[3] if len(sys.argv) > 3 else ""
    if not (build / "build.ninja").exists():
        print("skip: not a Ninja build")
        sys.exit(77)
    faults = [NOTHING] if words == "--control" else chosen(words)
    assert faults, f"no fault of {words}"
    green = []
    with tempfile.TemporaryDirectory() as folder:
        for fault in faults:
            red = turns_red(build, source, fault, pathlib.Path(folder))
            print(f"law {fault[0]}, {fault[1]}: {red or 'NOT SEEN'} ({fault[5]})", flush=True)
            green += [] if red else [fault[1]]
    if words == "--control":
        assert green == [NOTHING[1]], "a change without effect turned a test red"
        print("a change without effect is reported as not seen")
        return
    assert not green, f"not seen: {green}"
    print(f"{len(faults)} planted faults are seen")


if __name__ == "__main__":
    main()
