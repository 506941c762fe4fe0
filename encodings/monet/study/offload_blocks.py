"""Offloading by blocks of operators, after Rockmate's integer program, rebuilt from its published notes.

The step is cut into blocks of consecutive operators. A block lasts as long as its operators, or as the copies out or
the copies back that go on beside it, whichever is longest. Of each tensor a fraction may leave in a block and a
fraction come back; what isn't on the device must have left. So bytes count block by block, where `offload-layers`
adds them up. What is recomputed is made right before its first use. Rockmate nests such programs over parts of a
graph; here there is one, for all of it. Whole tensors travel in the plan: those of which most is away at some time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.bounds.travel import last_readers
from gapless.encodings.monet.evaluate import unlimited_s
from gapless.encodings.monet.options import byte_unit, cost_unit
from gapless.encodings.monet.problem import Problem
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["BlocksProgram", "encode_blocks"]

MOST_BLOCKS = 40
"""Of operators, forward and backward ones together."""

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class BlocksProgram:
    """The integer program. `again`: the column of each tensor that the backward pass reads, for recomputing it.

    `there`: the columns of its fraction on the device when each block begins in which it may be away. `work_s`: of each
    block; `of_step`: the block of each operator, the forward ones first.
    """

    model: Model
    work_s: Floats
    of_step: Ids
    again: dict[int, int] = field(default_factory=dict)
    there: dict[int, list[int]] = field(default_factory=dict)

    def modes(self, values: Floats, nodes: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which tensors are kept, on the host for a time or not, and which are on the host; bool, (nodes,)."""
        kept, away = np.zeros((2, nodes), dtype=np.bool_)
        for tensor, column in self.again.items():
            kept[tensor] = values[column] < 0.5
            away[tensor] = kept[tensor] and min((values[k] for k in self.there[tensor]), default=1.0) < 0.5
        return kept, away


def encode_blocks(problem: Problem, claim_bytes: int, variant: Ids) -> BlocksProgram:
    """The quickest step within a budget, each operator in its least time; `variant`: of each backward node."""
    graph, link = problem.graph, problem.link
    assert link is not None
    needed, least_s = _needed(graph, variant), _least_s(graph, variant)
    passed = np.cumsum(least_s) - least_s / 2
    block = np.minimum(passed / max(float(least_s.sum()), 1e-300) * MOST_BLOCKS, MOST_BLOCKS - 1).astype(np.int64)
    of_step = np.unique(block, return_inverse=True)[1]
    program = BlocksProgram(Model("offload_blocks"), np.bincount(of_step, least_s).astype(np.float64), of_step)
    unit, unit_bytes, count = cost_unit(unlimited_s(graph)), byte_unit(graph), len(program.work_s)
    held = _base_bytes(graph, needed, of_step, variant)
    time = program.model.continuous("time", count)
    rows = {name: list[tuple[int, int, float]]() for name in ("work", "out", "back", "memory")}
    last = last_readers(graph)
    for tensor, steps in needed.items():
        size, node = float(graph.output_bytes[tensor]), graph.forward[tensor]
        free, due = int(of_step[last[tensor]]) + 1, int(of_step[steps[0]])
        again = program.again[tensor] = int(program.model.binaries(f"again_{tensor}", 1)[0])
        if node.creator is not None:  # an intermediate isn't made again
            program.model.add_sparse(f"made_once_{tensor}", 1, [0], [again], [1.0], upper=0.0)
        again_s = min(impl.duration_s for impl in node.again or node.implementations)
        rows["work"].append((due, again, again_s / unit))
        copy_time = link.copy_s(size) / unit
        program.there[tensor] = _journey(program, rows, tensor, range(free, due), size / unit_bytes, copy_time)
    _inputs_are_there(program, graph, of_step, needed)
    for name, limits in (("work", program.work_s / unit), ("out", np.zeros(count)), ("back", np.zeros(count))):
        # Of a slow link a row is divided, so that its coefficients are near 1.
        scale = max([1.0, *(value for _, _, value in rows[name])])
        terms = [(b, column, value / scale) for b, column, value in rows[name]]
        _add(program.model, name, [*terms, *((b, int(time[b]), -1.0 / scale) for b in range(count))], -limits / scale)
    _add(program.model, "memory", rows["memory"], (claim_bytes - held) / unit_bytes)
    program.model.minimize((1.0, time))
    return program


def _journey(
    program: BlocksProgram, rows: dict[str, list[tuple[int, int, float]]], tensor: int, blocks: range, size: float,
    copy_time: float,
) -> list[int]:  # fmt: skip
    """The columns of one tensor's fraction on the device, and what is copied of it in each block."""
    count, model, again = len(blocks), program.model, program.again[tensor]
    if not count:
        return []
    there, out, back = (model.continuous(f"{name}_{tensor}", count, upper=1.0) for name in ("there", "out", "back"))
    chain, ends = list[tuple[int, int, float]](), list[float]()

    def row(bound: float, *terms: tuple[int, float]) -> None:
        chain.extend((len(ends), column, value) for column, value in terms)
        ends.append(bound)

    row(-1.0, (int(there[0]), -1.0), (again, -1.0))  # it begins on the device, unless it is made again
    for k, block in enumerate(blocks):
        here, leaves, comes = int(there[k]), int(out[k]), int(back[k])
        row(1.0, (here, 1.0), (again, 1.0))
        row(0.0, (leaves, 1.0), (here, -1.0))
        row(-1.0, (here, -1.0), (again, -1.0), *((int(gone), -1.0) for gone in out[:k]))  # it has left, or is here
        later = (int(there[k + 1]), 1.0) if k + 1 < count else (again, -1.0)
        row(0.0 if k + 1 < count else -1.0, later, (here, -1.0), (comes, -1.0))
        rows["memory"] += [(block, here, size), (block, comes, size)]
        rows["out"].append((block, leaves, copy_time))
        rows["back"].append((block, comes, copy_time))
    _add(model, f"journey_{tensor}", chain, np.array(ends))
    return [int(column) for column in there]


def _inputs_are_there(program: BlocksProgram, graph: TrainingGraph, of_step: Ids, needed: dict[int, list[int]]) -> None:
    """What is made again has its inputs: they are on the device then, or made again as well."""
    terms, number = list[tuple[int, int, float]](), 0
    last = last_readers(graph)
    for tensor, again in program.again.items():
        due = int(of_step[needed[tensor][0]])
        for source in graph.forward[tensor].inputs:
            if source not in program.again:
                continue
            place = due - int(of_step[last[source]]) - 1
            if 0 <= place < len(program.there[source]):
                terms += [(number, again, 1.0), (number, program.there[source][place], -1.0)]
                terms.append((number, program.again[source], -1.0))
                number += 1
    _add(program.model, "inputs_are_there", terms, np.zeros(number))


def _add(model: Model, name: str, terms: list[tuple[int, int, float]], upper: Floats) -> None:
    if len(upper):
        row, column = (np.array([term[k] for term in terms], dtype=np.int64) for k in (0, 1))
        model.add_sparse(name, len(upper), row, column, np.array([term[2] for term in terms]), upper=upper)


def _needed(graph: TrainingGraph, variant: Ids) -> dict[int, list[int]]:
    """The steps whose backward nodes read each tensor of some bytes, ascending; forward nodes are the first steps."""
    found: dict[int, list[int]] = {}
    for b, (node, chosen) in enumerate(zip(graph.backward, variant.tolist(), strict=True)):
        for need in node.variants[chosen].needs:
            found.setdefault(need, []).append(len(graph.forward) + b)
    return {need: steps for need, steps in sorted(found.items()) if graph.output_bytes[need] > 0}


def _least_s(graph: TrainingGraph, variant: Ids) -> Floats:
    impls = [node.implementations for node in graph.forward]
    impls += [node.variants[k].implementations for node, k in zip(graph.backward, variant.tolist(), strict=True)]
    return np.array([min(impl.duration_s for impl in each) for each in impls])


def _base_bytes(graph: TrainingGraph, needed: dict[int, list[int]], of_step: Ids, variant: Ids) -> Floats:
    """What a block holds in any plan: its worst operator, and tensors between their first and last backward use."""
    rows = list[float]()
    for number, node in enumerate(graph.forward):
        alive = 0 if node.creator is not None else int(graph.output_bytes[graph.alive[number]].sum())
        workspace = min(impl.workspace_bytes for impl in node.implementations)
        rows.append(graph.fixed_bytes + node.output_bytes + alive + workspace)
    for b, (back, chosen) in enumerate(zip(graph.backward, variant.tolist(), strict=True)):
        workspace = min(impl.workspace_bytes for impl in back.variants[chosen].implementations)
        rows.append(back.fixed_bytes + float(graph.gradient_bytes[b]) + back.output_bytes + workspace)
    found = np.zeros(int(of_step.max()) + 1)
    np.maximum.at(found, of_step, np.maximum(rows, 0.0))
    for tensor, steps in needed.items():
        found[of_step[steps[0]] : of_step[steps[-1]] + 1] += graph.output_bytes[tensor]
    return found
