"""One sum: whether all ranks can have the sum of one byte within some steps of time, by a model that knows only that.

Leave all other bytes out of a plan, and put time into steps as long as the shortest message. Let a message be in the
steps from that in which it starts to before that in which it ends: in no fewer than its time has whole steps. Then what
came one after the other still does, and what must not overlap doesn't. So a plan of a byte that ends within K steps is
a point of the model with K steps; where the model has none, no plan ends before K + 1 of them are over.

What is modelled are the rules of sums: a rank's copy holds the parts of some ranks. A message adds what its sender's
copy holds, if nothing is added twice, or takes the place of the copy, if it holds all that the copy does. A copy is
neither sent nor written to while it is written to. Links that share a port take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Ids
from gapless.encodings.taccl.bounds.cuts import Kind
from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.model import Model, Term
from gapless.options import Deadline, SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology

__all__ = ["is_impossible", "one_sum_bound_s"]


SOLVER = "cpsat"
"""All is clauses over binaries, whose proofs are of whole numbers."""


def one_sum_bound_s(
    topology: Topology, kinds: list[Kind], known_s: float, parameters: BoundParameters, options: SolveOptions
) -> float:
    """Seconds that no plan for these sums takes less, if they are more than `known_s`, which is one such bound; else 0.

    Looked at is the sum that most ranks want, on all links, in more and more steps: up to `most_sum_steps`.
    """
    best_s = 0.0
    kinds = [kind for kind in kinds if min(len(kind.holders), len(kind.wants)) > 1]
    if not kinds or not len(topology.links):
        return best_s
    kind = max(kinds, key=lambda one: len(one.wants))
    byte_s = topology.alpha_s + topology.beta_s_per_byte
    step_s, deadline = float(byte_s.min()), Deadline(options)
    whole = np.maximum((byte_s / step_s * (1 + 1e-12)).astype(np.int64), 1)
    while not deadline.over:
        steps = int(max(known_s, best_s) / step_s * (1 + 1e-9))
        rows = (4 * len(whole) + 2 * topology.device_count) * len(kind.holders) * steps
        if not 0 < steps <= parameters.most_sum_steps or rows > parameters.most_sum_rows:
            break
        limited = replace(deadline.stage(), threads=1, step_limit=parameters.sum_work, on_progress=None)
        if not is_impossible(topology, kind, whole, steps, limited):
            break
        best_s = (steps + 1) * step_s * (1 - 1e-12)
    return best_s


def is_impossible(topology: Topology, kind: Kind, whole: Ids, steps: int, options: SolveOptions) -> bool:
    """Whether it is proven that the sum can't be everywhere in `steps`; a message on link l takes `whole[l]`."""
    parts = _Parts.of(topology, kind, whole, steps)
    if parts is None:
        return True
    _copies_are_in_one_message_at_a_time(parts)
    _ports_take_turns(parts)
    _a_copy_changes_with_a_message_alone(parts)
    _a_message_adds_or_takes_the_place_of_a_copy(parts)
    return solve_model(parts.model, options, SOLVER).status is Status.INFEASIBLE


@dataclass(frozen=True)
class _Parts:
    """The columns: `sent[l, k]`, a message starts on link l in step k; `adds[l, k]`, it is added, and takes no
    copy's place; `has[v, p, k]`, rank v's copy has part p at the start of step k.
    """

    model: Model
    topology: Topology
    whole: Ids
    steps: int
    sent: Ids
    adds: Ids
    has: Ids

    @classmethod
    def of(cls, topology: Topology, kind: Kind, whole: Ids, steps: int) -> _Parts | None:
        """None where some part can't be there in time."""
        holders = np.array(kind.holders)
        away = distances_s(topology, whole.astype(np.float64), holders).T
        if away[list(kind.wants)].max() > steps:
            return None
        time = np.arange(steps + 1)
        can_have = away[:, :, None] <= time
        must_have = np.zeros_like(can_have)
        must_have[holders, np.arange(len(holders)), :] = True
        must_have[list(kind.wants), :, -1] = True
        model = Model("taccl_one_sum")
        last = steps - whole
        sent = model.integers("sent", (len(whole), steps), upper=np.arange(steps) <= last[:, None])
        has = model.integers("has", can_have.shape, lower=must_have, upper=can_have)
        return cls(model, topology, whole, steps, sent, model.binaries("adds", sent.shape), has)

    def in_transit(self, links: Ids, step: int) -> Ids:
        """The columns of messages on some links in transit in a step."""
        return np.concatenate([self.sent[link, max(0, step + 1 - self.whole[link]) : step + 1] for link in links])


def _copies_are_in_one_message_at_a_time(parts: _Parts) -> None:
    """A copy is written to by one message at a time, and not sent meanwhile."""
    topology, number = parts.topology, 0
    for rank in range(topology.device_count):
        into, out = np.flatnonzero(topology.link_target == rank), np.flatnonzero(topology.link_source == rank)
        for step in range(parts.steps):
            writes = [parts.in_transit(into, step)] if len(into) else []
            for link in out.tolist() or [-1]:
                reads = [parts.in_transit(np.array([link]), step)] if link >= 0 else []
                if columns := writes + reads:
                    parts.model.add(f"one_at_a_time_{number}", (1.0, np.concatenate(columns)), upper=1.0)
                    number += 1


def _ports_take_turns(parts: _Parts) -> None:
    """Of links that share a resource one carries a message at a time."""
    topology = parts.topology
    for resource in np.unique(topology.held).tolist():
        links = np.unique(topology.held_by[topology.held == resource])
        for step in range(parts.steps):
            parts.model.add(f"turns_{resource}_{step}", (1.0, parts.in_transit(links, step)), upper=1.0)


def _a_copy_changes_with_a_message_alone(parts: _Parts) -> None:
    """A copy keeps the parts that it has, and gets none where no message ends."""
    topology, count = parts.topology, parts.has.shape[1]
    parts.model.add("kept", ([1.0, -1.0], np.stack([parts.has[:, :, :-1], parts.has[:, :, 1:]], axis=-1)), upper=0.0)
    for rank in range(topology.device_count):
        for step in range(1, parts.steps + 1):
            ends = (topology.link_target == rank) & (parts.whole <= step)
            brings = parts.sent[ends, step - parts.whole[ends]]
            pair = np.stack([parts.has[rank, :, step], parts.has[rank, :, step - 1]], axis=-1)
            terms: list[Term] = [([1.0, -1.0], pair)]
            if len(brings):
                terms.append((-1.0, np.broadcast_to(brings, (count, len(brings)))))
            parts.model.add(f"brought_{rank}_{step}", *terms, upper=0.0)


def _a_message_adds_or_takes_the_place_of_a_copy(parts: _Parts) -> None:
    """It brings all that its sender's copy has at its start: all of it new, or with all that the copy had."""
    topology, count = parts.topology, parts.has.shape[1]
    link, step = np.nonzero(np.arange(parts.steps) <= (parts.steps - parts.whole)[:, None])
    sent, adds = (
        np.broadcast_to(column[link, step][:, None], (len(link), count)) for column in (parts.sent, parts.adds)
    )
    end = step + parts.whole[link]
    come = parts.has[topology.link_source[link], :, step]
    had, has = (parts.has[topology.link_target[link], :, at] for at in (end - 1, end))
    rows: dict[str, tuple[list[float], list[Ids], float]] = {
        "all_of_it_comes": ([1.0, 1.0, -1.0], [sent, come, has], 1.0),
        "no_more_comes": ([1.0, 1.0, -1.0, -1.0], [sent, has, come, had], 1.0),
        "nothing_twice": ([1.0, 1.0, 1.0, 1.0], [sent, adds, come, had], 3.0),
        "or_all_that_was_there": ([1.0, 1.0, -1.0, -1.0], [sent, had, come, adds], 1.0),
    }
    for family, (coefficients, columns, upper) in rows.items():
        parts.model.add(family, (coefficients, np.stack(columns, axis=-1)), upper=upper)
