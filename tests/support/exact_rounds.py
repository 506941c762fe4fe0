"""The least rounds in which all ranks can have the sum of one chunk, where every message takes one round: by CP-SAT.

A second, independent model beside the bound's: states of copies as binaries, rounds in place of steps and times.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

__all__ = ["Send", "schedule_in_rounds"]

Pair = tuple[int, int]
Send = tuple[int, int, int, bool]
"""Round, source, target, and whether what is sent is added (or else takes the place of the copy)."""


def schedule_in_rounds(ranks: int, links: list[Pair], rounds: int, work: float) -> list[Send] | None:
    """The sends of a schedule with so many rounds, None if it is proven that there is none.

    `links`: which ranks may send to which, each without regard to the others. `work`: CP-SAT's deterministic time;
    raises `TimeoutError` where that is not enough to know.
    """
    model = cp_model.CpModel()
    everyone, times = range(ranks), range(rounds)
    sends = {(time, *link): model.new_bool_var("") for time in times for link in links}
    adds = {send: model.new_bool_var("") for send in sends}
    has = {(rank, part, 0): model.new_constant(rank == part) for rank in everyone for part in everyone}
    has |= {(rank, part, time + 1): model.new_bool_var("") for rank in everyone for part in everyone for time in times}
    for time in times:
        for rank in everyone:
            writes = [sent for (at, _, target), sent in sends.items() if (at, target) == (time, rank)]
            reads = [sent for (at, source, _), sent in sends.items() if (at, source) == (time, rank)]
            model.add_at_most_one(writes)
            for read in reads:
                model.add_at_most_one([*writes, read])
            for part in everyone:
                before, after = has[rank, part, time], has[rank, part, time + 1]
                model.add_implication(before, after)
                model.add_bool_or([*writes, before, ~after])
    for (time, source, target), sent in sends.items():
        for part in everyone:
            come, had, after = has[source, part, time], has[target, part, time], has[target, part, time + 1]
            model.add_implication(come, after).only_enforce_if(sent)
            model.add_bool_or([come, had, ~after]).only_enforce_if(sent)
            model.add_bool_or([~come, ~had]).only_enforce_if([sent, adds[time, source, target]])
            model.add_implication(had, come).only_enforce_if([sent, ~adds[time, source, target]])
    for rank in everyone:
        model.add_bool_and([has[rank, part, rounds] for part in everyone])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError(f"{rounds} rounds are undecided after work of {work:g}")
    return [(*send, bool(solver.value(adds[send]))) for send, sent in sends.items() if solver.value(sent)]
