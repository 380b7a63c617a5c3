"""What a run that goes on loads: the states of all old ranks, or of those whose machines are still there."""

import math
import sys
from ctypes import byref, c_size_t, c_uint32

from .groups import gather, say_together
from .library import GradwireError, Why, check, lib


def heirs(world, ranks, rank):
    """The old ranks whose residuals this rank takes over."""
    found, n, why = (c_uint32 * max(world, 1))(), c_size_t(), Why()
    check(lib.gw_feedback_heirs(world, ranks, rank, found, world, byref(n), byref(why)), why)
    return list(found[:n.value])


def named(ranks):
    """ranks 0, 2 and 5"""
    text = [str(rank) for rank in ranks]
    return f"rank {text[0]}" if len(text) == 1 else f"ranks {', '.join(text[:-1])} and {text[-1]}"


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
        if not isinstance(s, dict) or s.get("format") != "gradwire.state/1":
            raise GradwireError(f"state {i} is not one of gradwire's")
    states = [s for _, s in states]
    for s in states:
        first = states[0]
        if s["world"] != first["world"] or s["step"] != first["step"]:
            raise GradwireError(f"the state of rank {s['rank']} is of step {s['step']} of {s['world']} ranks, that of rank "
                                f"{first['rank']} of step {first['step']} of {first['world']}")
    if not listed and states and state["world"] == session.ranks and state["rank"] != session.rank:
        raise GradwireError(f"rank {session.rank} was given what rank {state['rank']} saved")
    if not states:
        return {"missing": missing, "world": None, "ranks": [], "norms": {}, "levels": False}, {}
    session.check_world(states[0]["world"])
    mine = set(heirs(states[0]["world"], session.ranks, session.rank))
    norms = {}
    for s in states:
        if s["rank"] in mine:
            try:
                norms[s["rank"]] = session.norm_of(s["residuals"])
            except GradwireError as error:
                raise GradwireError(f"the state of rank {s['rank']} is damaged: {error}; leave it out and pass missing=\"drop\" to go on "
                                    "without its residuals") from None
    states = {s["rank"]: s for s in states}
    levels = states[session.rank].get("levels") if session.ranks == s["world"] and session.rank in states else None
    return {"missing": missing, "world": s["world"], "step": s["step"], "ranks": sorted(states), "norms": norms,
            "levels": levels is not None}, states


def _lost(given, world, ranks):
    """Old ranks whose states their heirs were not given. All ranks find the same."""
    lost = []
    for heir in range(ranks):
        lost += [r for r in heirs(world, ranks, heir) if r not in given[heir]["ranks"]]
    lost.sort()
    if lost and given[0]["missing"] == "error":
        whose = f"the state of {named(lost)} of {world} is" if len(lost) == 1 else f"the states of {named(lost)} of {world} are"
        raise GradwireError(f"{whose} missing: give load_state_dict the states of all old ranks, as a list; or, if they are lost, pass "
                            "missing=\"drop\" on all ranks: their residuals then begin at zero")
    for r in lost:
        for rank, other in enumerate(given):
            if r in other["ranks"]:
                raise GradwireError(f"rank {rank} was given the state of old rank {r}, and rank {r % ranks}, which takes it over, was "
                                    "not: give all ranks the same list")
    return lost


def load(session, state, missing, quiet):
    mine, states = say_together(session.group, lambda: _look(session, state, missing), "load")
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
    # with another number of ranks levels begin with the default
    text = session.load(world, first["step"], {r: s["residuals"] for r, s in states.items()}, levels, bool(lost))
    session.lost = None
    if lost:
        norms = [norm for g in given for norm in g["norms"].values()]
        session.lost = Lost(lost, world, norms, session.measured(), session.rank, quiet)
        for one in session.measured():
            one.compare(session.lost)
        text += "; " + session.lost.words()
    return text
