"""What a run that goes on loads: the states of all old ranks, or of those whose machines are still there."""

import collections
import inspect
import io
import math
import sys
from ctypes import byref, c_size_t, c_uint32

import torch
import torch.distributed as dist

from .groups import gather, named, say_together
from .library import GradwireError, Why, check, lib


FORMAT, WITH_ADAM = "gradwire.state/1", "gradwire.state/2"  # 2: with the momenta of attach(…, optimizer=)
SLOTS = 256  # ranks, at most, of a checkpoint of torch.distributed.checkpoint


def made_by(session):
    """What one rank saves."""
    state = {"format": FORMAT, "world": session.ranks, "rank": session.rank, "step": session.number, "residuals": session.save(),
             "of_each_rank": OfEachRank()}
    if session.chooses:
        state["levels"] = session.save_levels()
    if session.adam is not None:
        state.update(format=WITH_ADAM, adam=session.adam.saved())
    return state


# ---- torch.distributed.checkpoint ----

class OfEachRank:
    """Makes torch.distributed.checkpoint refuse a bare state: it asks each object of this kind how to write it. Otherwise it would write
    one rank's residuals only, since all ranks have them under the same key. Pickled, this is an empty dict."""

    def __create_write_items__(self, name, _object):
        raise GradwireError(f"'{name.split('.of_each_rank')[0]}': torch.distributed.checkpoint would keep one rank's residuals and drop those "
                            "of all others. Save gradwire.Checkpoint(model) instead of gradwire.state_dict(model)")

    def __reduce__(self):
        return collections.OrderedDict, ()

    def __deepcopy__(self, _memo):
        return self


def slots(session):
    """This rank's part of a checkpoint: its own state, and empty slots. A load must name the keys before it knows how many ranks saved.
    So the keys are always the same, and each rank has those of the old ranks that it would take over."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if world > SLOTS:
        raise GradwireError(f"gradwire.Checkpoint is for {SLOTS} ranks at most, not {world}: save gradwire.state_dict() of every rank in a "
                            "file of its own")
    file = io.BytesIO()
    torch.save({"world": world, "state": made_by(session)}, file)
    return {f"rank {slot}": file.getvalue() if slot == rank else b"" for slot in range(rank, SLOTS, world)}


def of_slots(session, found):
    """The states of the old ranks that this one takes over."""
    only_data = {"weights_only": True} if "weights_only" in inspect.signature(torch.load).parameters else {}
    saved = [torch.load(io.BytesIO(slot), **only_data) for slot in found.values() if slot]
    world = dist.get_world_size()
    for one in saved:
        if one["world"] != world and session.ranks != world:
            raise GradwireError(f"saved by {one['world']} ranks, loaded by {world}: a model on a part of the ranks is loaded by as many as "
                                "saved it")
    return [one["state"] for one in saved]


def heirs(world, ranks, rank):
    """The old ranks whose residuals this rank takes over."""
    found, n, why = (c_uint32 * max(world, 1))(), c_size_t(), Why()
    check(lib.gw_feedback_heirs(world, ranks, rank, found, world, byref(n), byref(why)), why)
    return list(found[:n.value])


class Lost:
    """What was lost at a load. The line about it also needs a gradient, the first one afterwards."""

    def __init__(self, ranks, world, norms, sessions, rank, quiet):
        self.ranks, self._world, self._survivors = ranks, world, len(norms)
        self.residual_norm = math.sqrt(sum(norm * norm for norm in norms) / len(norms))
        self.gradient_norm, self._step = None, None
        self._squares = dict.fromkeys(sessions)
        self._rank, self._quiet = rank, quiet

    def add(self, session, step, squares):
        """The gradient of one session's step. True: it was taken, and another step's is not needed."""
        if not (math.isfinite(squares) and squares > 0):
            return False
        self._squares[session] = squares
        if None not in self._squares.values():
            self.gradient_norm, self._step = math.sqrt(sum(self._squares.values())), step
            if self._rank == 0 and not self._quiet:
                print(f"gradwire: {self.words()}", file=sys.stderr)
        return True

    def words(self):
        lost = f"the residuals of {named(self.ranks)} of {self._world} are lost and begin at zero"
        if self.gradient_norm is None:
            return lost
        return (f"{lost}; those of the {self._survivors} surviving ranks are {self.residual_norm / self.gradient_norm:.3g} times a "
                f"gradient (norms: residuals {self.residual_norm:.4g}, root mean square over ranks; gradient "
                f"{self.gradient_norm:.4g}, rank {self._rank}'s own of step {self._step}, before compression)")

    def stats(self):
        return {"ranks": self.ranks, "residual_norm": self.residual_norm, "gradient_norm": self.gradient_norm, "words": self.words()}


def _look(session, state, missing):
    """What this rank was given, for the others to know. Checks all that one rank can check."""
    if missing not in ("error", "drop"):
        raise GradwireError(f"missing={missing!r}: it is \"error\" or \"drop\"")
    listed = isinstance(state, (list, tuple))
    states = [(i, s) for i, s in enumerate(state if listed else [state]) if s is not None]
    for i, s in states:
        if not isinstance(s, dict) or s.get("format") not in (FORMAT, WITH_ADAM):
            raise GradwireError(f"state {i} is not one of gradwire's")
    states = [s for _, s in states]
    for s in states:
        first = states[0]
        if s["world"] != first["world"] or s["step"] != first["step"]:
            raise GradwireError(f"the state of rank {s['rank']} is of step {s['step']} of {s['world']} ranks, that of rank "
                                f"{first['rank']} of step {first['step']} of {first['world']}")
    if not listed and states and state["world"] == session.ranks and state["rank"] != session.rank:
        raise GradwireError(f"rank {session.rank} was given what rank {state['rank']} saved: every rank loads its own state. If it "
                            "comes from torch.distributed.checkpoint, save gradwire.Checkpoint(model) there")
    if not states:
        return {"missing": missing, "world": None, "ranks": [], "norms": {}, "levels": False, "adam": None}, {}
    session.check_world(states[0]["world"])
    mine = set(heirs(states[0]["world"], session.ranks, session.rank))
    norms = {}
    for s in states:
        if s["rank"] in mine:
            _look_at_adam(session, s)
            try:
                norms[s["rank"]] = session.norm_of(s["residuals"])
            except GradwireError as error:
                raise GradwireError(f"the state of rank {s['rank']} is damaged: {error}; leave it out and pass missing=\"drop\" to go on "
                                    "without its residuals") from None
    states = {s["rank"]: s for s in states}
    levels = states[session.rank].get("levels") if session.ranks == s["world"] and session.rank in states else None
    return {"missing": missing, "world": s["world"], "step": s["step"], "ranks": sorted(states), "norms": norms,
            "levels": levels is not None, "adam": _common(s)}, states


def _look_at_adam(session, state):
    saved = state.get("adam")
    if saved is None:
        return
    if session.adam is not None:
        session.adam.check(saved)
    elif saved["phase"] != "warm-up":
        raise GradwireError("the state holds momenta of attach(…, optimizer=): attach with optimizer= to go on with it")


def _common(state):
    """What all ranks' states of Adam have in common."""
    saved = state.get("adam")
    return None if saved is None else {k: v for k, v in saved.items() if k not in ("momentum", "loss")}


def _load_adam(session, given, states, world, lost):
    """What was done, and what is to be done when residuals are there."""
    saved = next((g["adam"] for g in given if g["adam"] is not None), None)
    held = [s["adam"] for r, s in sorted(states.items()) if "adam" in s and r in heirs(world, session.ranks, session.rank)]
    same = world == session.ranks and not lost
    return session.adam.load(saved, held, None if same else session.ranks / (world - len(lost)),
                             next(g["step"] for g in given if g["world"] is not None))


def _lost(given, world, ranks):
    """Old ranks whose states their heirs were not given. All ranks find the same."""
    lost = []
    for heir in range(ranks):
        lost += [r for r in heirs(world, ranks, heir) if r not in given[heir]["ranks"]]
    lost.sort()
    if lost and given[0]["missing"] == "error":
        whose = f"the state of {named(lost)} of {world} is" if len(lost) == 1 else f"the states of {named(lost)} of {world} are"
        raise GradwireError(f"{whose} missing: give load_state_dict the states of all old ranks, as a list (torch.distributed.checkpoint: "
                            "gradwire.Checkpoint does that); or, if they are lost, pass "
                            "missing=\"drop\" on all ranks: their residuals then begin at zero")
    for r in lost:
        for rank, other in enumerate(given):
            if r in other["ranks"]:
                raise GradwireError(f"rank {rank} was given the state of old rank {r}, and rank {r % ranks}, which takes it over, was "
                                    "not: give all ranks the same list")
    return lost


def load(session, get, missing, quiet):
    """`get` returns this rank's state, or a list, or fails."""
    mine, states = say_together(session.group, lambda: _look(session, get(), missing), "load")
    given = gather(session.group, mine)
    first = next((g for g in given if g["world"] is not None), None)
    if first is None:
        raise GradwireError("no rank was given a state: there is nothing to load")
    for rank, g in enumerate(given):
        if g["missing"] != given[0]["missing"]:
            raise GradwireError(f"rank {rank} loads with missing=\"{g['missing']}\", rank 0 with \"{given[0]['missing']}\"")
        if g["world"] is not None and (g["world"], g["step"]) != (first["world"], first["step"]):
            raise GradwireError(f"rank {rank} was given a state of step {g['step']} of {g['world']} ranks, others of step "
                                f"{first['step']} of {first['world']}")
    world = first["world"]
    lost = _lost(given, world, session.ranks)
    levels = states[session.rank].get("levels") if mine["levels"] and session.chooser is not None else None
    if lost and session.chooser is not None and any(g["levels"] for g in given):  # ranks have chosen the same levels
        donor = [g["levels"] for g in given].index(True)
        others = gather(session.group, levels if session.rank == donor else None)[donor]
        levels = levels if levels is not None else others
    told, settle = "", None
    if session.adam is not None:
        told, settle = _load_adam(session, given, states, world, lost)
    # with another number of ranks levels begin with the default
    text = session.load(world, first["step"], {r: s["residuals"] for r, s in states.items()}, levels, bool(lost)) + told
    if settle is not None:
        settle()
    if told and not quiet and session.rank == 0:
        print(f"gradwire: {text}", file=sys.stderr)
    session.lost = None
    if lost:
        norms = [norm for g in given for norm in g["norms"].values()]
        session.lost = Lost(lost, world, norms, session.measured(), session.rank, quiet)
        for one in session.measured():
            one.compare(session.lost)
        text += "; " + session.lost.words()
    return text
