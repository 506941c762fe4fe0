"""All ranks of a mesh in this process: each instruction of a program on every rank before the next. Imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch

from gapless.profiles.devices import named_device
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.layouts.costs import MeshCosts
from gapless.profiles.layouts.greedy import completed
from gapless.profiles.layouts.layouts import MeshLayouts, is_partial, replicated, split_dimension
from gapless.profiles.layouts.transitions import Step, steps_between
from gapless.torch.capture.model_state import ModelStep
from gapless.torch.joint_graph import JointGraph
from gapless.torch.sharding.execution.local_calls import Place
from gapless.torch.sharding.execution.program import Change, Program, compiled
from gapless.torch.sharding.execution.running import called
from gapless.torch.sharding.tables import ModelTables, model_tables

__all__ = ["Lockstep", "drawn_layouts", "given_of", "tables_of", "whole_values"]

_REDUCED: dict[str, Callable[..., torch.Tensor]] = {
    "P": torch.sum, "P(mask)": torch.sum, "P(avg)": torch.mean,
}  # fmt: skip


def tables_of(joint: JointGraph, mesh: tuple[int, ...]) -> ModelTables:
    """The choices of a graph on a mesh of fast links."""
    networks = tuple(FlatNetwork(size, 1e9, 1e-6) for size in mesh)
    return model_tables(joint, MeshCosts(networks, named_device("h100")), share=False)


def given_of(step: ModelStep, joint: JointGraph) -> dict[torch.fx.Node, torch.Tensor]:
    """What a step is given, by the nodes that stand for it."""
    named = {**dict(step.module.named_parameters(remove_duplicate=False)),
             **dict(step.module.named_buffers(remove_duplicate=False))}  # fmt: skip
    return {
        node: torch.ones(()) if role.kind == "tangent"
        else step.leaves[role.index] if role.kind == "input" else named[role.name].detach()
        for node, role in joint.inputs.items()
    }  # fmt: skip


def drawn_layouts(model: ModelTables, seed: int) -> MeshLayouts:
    """Layouts that are possible, drawn at random."""
    drawn = np.random.default_rng(seed)
    tables = model.tables
    allowed = [np.ones(len(costs), dtype=bool) for costs in tables.costs_ns]
    extra = {edge: drawn.integers(0, 10**9, table.shape) for edge, table in enumerate(tables.tables)}
    choices = completed(tables, allowed, extra)
    assert choices is not None
    return model.layouts(choices)


def whole_values(joint: JointGraph, given: dict[torch.fx.Node, torch.Tensor]) -> dict[str, object]:
    """What each node of a graph makes of what it is given, in one process."""
    values: dict[torch.fx.Node, object] = {**given, **joint.constants}
    with torch.no_grad():
        for node in joint.module.graph.nodes:
            if node.op == "call_function":
                arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*arguments, **options)
    return {node.name: value for node, value in values.items()}


class Lockstep:
    """The ranks of a mesh. `wrong`: nodes whose parts, put together, aren't what one process makes; by their names."""

    def __init__(self, joint: JointGraph, layouts: MeshLayouts) -> None:
        self.joint, self.layouts, self.mesh = joint, layouts, layouts.mesh
        self.places = [Place(self.mesh, numbers) for numbers in itertools.product(*map(range, self.mesh))]
        self.programs: list[Program] = [compiled(joint, layouts, place) for place in self.places]

    def run(self, given: dict[torch.fx.Node, torch.Tensor], expected: dict[str, object], seed: int) -> list[str]:
        """The names of nodes whose parts, put together, aren't what is expected."""
        values = [self._begin(program, place, given) for program, place in zip(self.programs, self.places, strict=True)]
        wrong = []
        states = [torch.Generator().manual_seed(seed).get_state() for _ in self.places]
        for both in zip(*((*each.forward, *each.backward) for each in self.programs), strict=True):
            first = both[0]
            if isinstance(first, Change):
                parts = [own[first.source.number] for own in values]
                for own, part in zip(values, self.change(parts, first.steps), strict=True):
                    own[first.slot.number] = part
            else:
                for rank, (own, operation) in enumerate(zip(values, both, strict=True)):
                    torch.set_rng_state(states[rank])
                    with torch.no_grad():
                        own[first.slot.number] = called(operation, own)
                    states[rank] = torch.get_rng_state()
                if first.shapes and not self._is_right(
                    first.name, [own[first.slot.number] for own in values], expected
                ):
                    wrong.append(first.name)
            for own in values:
                for slot in first.frees:
                    own[slot.number] = None
        return wrong

    def _begin(self, program: Program, place: Place, given: dict[torch.fx.Node, torch.Tensor]) -> list[object]:
        values: list[object] = [None] * program.size
        whole = zip(self.joint.inputs, program.inputs, strict=True)
        for node, (_, layout, slot) in whole:
            values[slot.number] = place.cut(given[node], layout)
        for tensor, layout, slot in program.constants:
            values[slot.number] = place.cut(tensor, layout)
        return values

    def _is_right(self, name: str, made: Sequence[object], expected: dict[str, object]) -> bool:
        planned, whole = self.layouts.by_name[name], expected[name]
        results = whole if isinstance(whole, tuple | list) else (whole,)
        for number, (layout, result) in enumerate(zip(planned.outputs, results, strict=True)):
            if not layout:
                continue
            parts = [each[number] if isinstance(whole, tuple | list) else each for each in made]
            steps = steps_between(layout, replicated(len(self.mesh)), tuple(result.shape), 4, self.mesh)
            for part in self.change(parts, steps):
                if part.shape != result.shape or not torch.allclose(part, result, rtol=1e-4, atol=1e-5):
                    return False
        return True

    def change(self, parts: Sequence[torch.Tensor], steps: Sequence[Step]) -> list[torch.Tensor]:
        """The ranks' parts after steps, written apart from the product's."""
        for step in steps:
            groups: dict[tuple[int, ...], list[int]] = {}
            for rank, place in enumerate(self.places):
                groups.setdefault((*place.numbers[: step.axis], *place.numbers[step.axis + 1 :]), []).append(rank)
            made = list(parts)
            for ranks in groups.values():
                for number, rank in enumerate(ranks):
                    made[rank] = _after([parts[each] for each in ranks], number, step)
            parts = made
        return list(parts)


def _after(parts: list[torch.Tensor], number: int, step: Step) -> torch.Tensor:
    before = split_dimension(step.before)
    if step.before == "R":
        whole = parts[number]
    else:
        whole = torch.cat(parts, before) if before is not None else _REDUCED[step.before](torch.stack(parts), 0)
    after = split_dimension(step.after)
    if after is not None:
        return whole.chunk(len(parts), after)[number].contiguous()
    if is_partial(step.after) and step.after != "P(avg)":
        return whole if number == 0 else torch.zeros_like(whole)
    return whole
