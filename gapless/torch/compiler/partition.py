"""A plan as the two modules that `torch.compile` wants: what the forward pass saves, and a backward pass in its order.

The backward module recomputes where the plan does, as often as it does. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import getitem
from typing import TypeAlias

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.training.graph import ForwardNode, TrainingGraph
from gapless.question.entry import Entry
from gapless.question.fields import Share, SizeOrShare
from gapless.recipe import solve
from gapless.result import Result
from gapless.system import find_system, system_names
from gapless.torch.capture.builder import GraphBuilder
from gapless.torch.capture.calls import GraphCall
from gapless.torch.capture.model_state import ModelState
from gapless.torch.capture.operators import is_random, op_name
from gapless.torch.capture.program import CapturedStep
from gapless.torch.capture.storages import find_storages
from gapless.torch.capture.timing import profile
from gapless.torch.compiler import aot
from gapless.torch.devices import random_state
from gapless.torch.library import Argument, Node, Tensor, torch, tree_flatten
from gapless.torch.rewrite.matching import Rewrites
from gapless.torch.run.events import PlannedCall, planned_calls
from gapless.torch.run.step_plan import StepPlan
from gapless.torch.run.step_plan import planned as planned_step

__all__ = ["captured", "partitioned", "plan_for"]

GraphModule: TypeAlias = torch.fx.GraphModule
aten = torch.ops.aten
rng_prims = torch._prims.rng_prims  # noqa: SLF001
_NORM = aten._native_batch_norm_legit_functional.default  # noqa: SLF001
_NORM_AGAIN = aten._native_batch_norm_legit.no_stats  # noqa: SLF001
_NORM_AGAIN_PLACES = range(3)
"""Its outputs when it runs again: running statistics are the first run's, which the forward pass returns."""
_SEEDS = ("inductor_seed", "inductor_seeds")
_COMPUTES = frozenset({"aten", "prims"})
"""The namespaces of operators that are known to compute and nothing else; others run once, and are not timed."""


def captured(graph: aot.AotGraph, cache: str | None = None) -> CapturedStep:
    """The step of a joint graph, timed: without what only a plan's own executor can run.

    Raises `InputError` where its memory can't be counted.
    """
    state = ModelState.of(torch.nn.Module())
    builder = GraphBuilder(
        graph.joint, find_storages(graph.joint), Rewrites(), graph.parameters, state, "compiled", (), in_place=False
    )
    leaves = [node.meta["val"] for node in graph.joint.inputs if isinstance(node.meta["val"], torch.Tensor)]
    batch = max((int(leaf.shape[0]) for leaf in leaves if leaf.dim()), default=1)
    step = profile(builder.build(GraphCall(leaves, max(batch, 1))), cache, namespaces=_COMPUTES)
    return replace(step, graph=_with_pins(step, graph))


def plan_for(step: CapturedStep, budget: str | int, options: SolveOptions | None) -> StepPlan:
    """A plan within a budget; for a share that is too little, within the least that a plan was found for.

    Raises `InputError` where there is none.
    """
    system = next(find_system(name) for name in system_names() if find_system(name).plans_steps)

    def result_within(budget: str | int) -> Result:
        problem = Entry(system).problem(step.graph, budget=budget)
        return solve(problem, options or problem.default_options)

    result = result_within(budget)
    least_bytes = result.details.get("least_budget_found_bytes")
    if result.schedule is None and isinstance(SizeOrShare()(budget), Share) and isinstance(least_bytes, int):
        result = result_within(least_bytes)
    plan = planned_step(step, result)
    again = {call.node for call in planned_calls(plan) if not call.is_first}
    for node in sorted(again & _pinned(step)):
        raise InputError(
            f"no plan: nothing fits in which {step.graph.forward[node].op} runs once; give a larger budget"
        )
    return plan


def partitioned(graph: aot.AotGraph, plan: StepPlan) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward module of a plan."""
    calls = planned_calls(plan)
    looked = _BackwardWriter(graph, plan.step, torch.fx.Graph(), {})
    looked.write(calls)
    forward, backward, number_count = aot.halves(graph, looked.saved(), looked.numbers())
    states = _save_states(graph, forward, backward, looked.drawn_again, number_count)
    ordered = torch.fx.Graph()
    places = {node.name: ordered.node_copy(node) for node in backward.graph.find_nodes(op="placeholder")}
    writer = _BackwardWriter(graph, plan.step, ordered, places, {name: places[state] for name, state in states.items()})
    writer.write(calls)
    if missing := writer.saved():
        raise AssertionError(f"compile: the backward module lacks {', '.join(node.name for node in missing)}")
    writer.end()
    return forward, aot.with_graph(backward, ordered)


class _BackwardWriter:
    """Writes the operators of a backward pass in a plan's order.

    `made`: the node that has a value now, by the name of the joint graph's. What is read and isn't there is noted as
    saved. `states`: where the random states of operators are, by their names. `drawn_again`: operators that need one.
    """

    def __init__(
        self,
        graph: aot.AotGraph,
        step: CapturedStep,
        written: torch.fx.Graph,
        made: dict[str, Node],
        states: dict[str, Node] | None = None,
    ) -> None:
        self._graph, self._step, self._written, self._made = graph, step, written, dict(made)
        self._states = states
        self._missing: dict[str, Node] = {}
        self._views: dict[int, list[str]] = {}
        self._copies = {node.name: node for node in graph.joint.module.graph.nodes}
        outputs = [value for value, role in graph.joint.outputs if role.kind != "output"]
        self._given = {storage for value in outputs for storage in step.storages.of[value]}
        """What the backward pass returns; it stays, whatever a plan's own executor would copy."""
        self.drawn_again: list[str] = []

    def saved(self) -> list[Node]:
        """The tensors that were read and not there."""
        return [node for node in self._missing.values() if not aot.is_symbolic(node)]

    def numbers(self) -> list[Node]:
        """The same of numbers that aren't known before the call."""
        return [node for node in self._missing.values() if aot.is_symbolic(node)]

    def write(self, calls: Sequence[PlannedCall]) -> None:
        """All that runs after the forward pass."""
        for call in calls:
            if call.is_after:
                self._call(call)
        (output,) = self._graph.module.graph.find_nodes(op="output")
        torch.fx.node.map_arg(tuple(output.args[0][self._graph.output_count :]), self._read)

    def end(self) -> None:
        """What the backward module returns."""
        (output,) = self._graph.module.graph.find_nodes(op="output")
        values = output.args[0][self._graph.output_count :]
        made = self._written.output(torch.fx.node.map_arg(tuple(values), self._read))
        if (descriptors := output.meta.get("desc")) is not None:
            made.meta["desc"] = descriptors[self._graph.output_count :]

    def _call(self, call: PlannedCall) -> None:
        node = self._graph.nodes[call.operator.name]
        kept = {call.node, *call.claimed}
        made = self._run(node, call)
        for value, place, holder in call.operator.values:
            is_made = call.is_first or node.target is not _NORM or place in _NORM_AGAIN_PLACES
            if is_made and (call.is_first or holder in kept):
                self._define(value, made, place)
        for value in call.gone:
            if not self._given.intersection(self._step.storages.of[value]):
                self._forget(value)

    def _run(self, node: Node, call: PlannedCall) -> Node:
        """A copy of an operator, which draws what it drew before, and takes no running statistics twice."""
        if call.is_first:
            made = self._written.node_copy(node, self._read)
        elif node.target is _NORM:
            made = self._like(node, _NORM_AGAIN, (*node.args[:3], *node.args[5:]), {})
        elif is_random(self._copies[node.name]):
            drawing = (self._state(node.name), node.target, *node.args)
            made = self._like(node, rng_prims.run_with_rng_state, drawing, node.kwargs)
        else:
            made = self._written.node_copy(node, self._read)
        made.meta["autograd_backward"] = True
        return made

    def _like(self, node: Node, target: object, arguments: tuple[Argument, ...], options: dict[str, Argument]) -> Node:
        """A call in the place of another operator."""

        def read(argument: Node) -> Node:
            return argument if argument.graph is self._written else self._read(argument)

        made = self._written.create_node(
            "call_function", target, torch.fx.node.map_arg(arguments, read), torch.fx.node.map_arg(options, read)
        )
        made.meta = {**node.meta}
        return made

    def _state(self, name: str) -> Node:
        if name not in self.drawn_again:
            self.drawn_again.append(name)
        if self._states is None:  # which the forward pass is yet to save
            return self._written.placeholder(f"state_of_{name}")
        return self._states[name]

    def _define(self, value: Node, made: Node, place: int | None) -> None:
        self._forget(value)
        if place is not None:
            source = self._graph.nodes[value.name]
            made = self._written.create_node("call_function", getitem, (made, place), {}, source.name)
            made.meta = {**source.meta, "autograd_backward": True}
        self._made[value.name] = made

    def _forget(self, value: Node) -> None:
        """Let a value go, and what looks at it; the code frees it after its last use."""
        self._made.pop(value.name, None)
        for storage in self._step.storages.of[value]:
            for view in self._views.pop(storage, ()):
                self._made.pop(view, None)

    def _read(self, node: Node) -> Node:
        """The node that has a value now; a view that isn't there is made."""
        if node.name in self._made:
            return self._made[node.name]
        if self._is_view(node):
            made = self._written.node_copy(node, self._read)
            made.meta["autograd_backward"] = True
            for storage in set(self._step.storages.of[self._copies[node.name]]):
                self._views.setdefault(storage, []).append(node.name)
        elif node.op == "get_attr":
            made = self._written.node_copy(node)
        else:
            known = self._written.find_nodes(op="placeholder") if node.name in self._missing else ()
            self._missing[node.name] = node
            made = next((each for each in known if each.target == node.name), None)
            made = self._written.placeholder(node.name) if made is None else made
        self._made[node.name] = made
        return made

    def _is_view(self, node: Node) -> bool:
        made = self._step.storages.made
        if node.op != "call_function" or aot.is_symbolic(node) or self._copies[node.name] in made:
            return False
        return not (node.target is getitem and self._copies[node.args[0].name] in made)


def _save_states(
    graph: aot.AotGraph, forward: GraphModule, backward: GraphModule, names: Sequence[str], number_count: int
) -> dict[str, str]:
    """Let the forward module return the random states of operators, and the backward module take them.

    Returns the names of the backward module's placeholders, by operator.
    """
    by_name = {node.name: node for node in forward.graph.nodes}
    states, places = [], {}
    tangent = next(node for node in backward.graph.find_nodes(op="placeholder") if "tangents" in node.name)
    for name in names:
        node = by_name[name]
        value = _like_state(graph.nodes[name])
        with forward.graph.inserting_before(node):
            both = forward.graph.call_function(
                rng_prims.run_and_save_rng_state,
                (node.target, *node.args),
                dict(node.kwargs),
            )
            state = forward.graph.call_function(getitem, (both, 0))
            made = forward.graph.call_function(getitem, (both, 1))
        state.meta["val"], made.meta = value, {**node.meta}
        node.replace_all_uses_with(made)
        forward.graph.erase_node(node)
        with backward.graph.inserting_before(tangent):
            place = backward.graph.placeholder(f"state_of_{name}")
        place.meta["val"] = value
        states.append(state)
        places[name] = place.name
    if states:
        (end,) = forward.graph.find_nodes(op="output")
        values = list(end.args[0])
        at = len(values) - number_count
        end.args = ((*values[:at], *states, *values[at:]),)
        end.meta.pop("desc", None)
        forward.recompile()
    return places


def _like_state(node: Node) -> Tensor:
    value = tree_flatten(node.meta["val"])[0][0]
    with value.fake_mode:
        return value.fake_mode.from_tensor(random_state(value.device))


def _with_pins(step: CapturedStep, graph: aot.AotGraph) -> TrainingGraph:
    """The graph in which a recomputation of what may run once only costs as much as a step."""
    total_s = sum(node.implementations[0].duration_s for node in step.graph.forward)
    total_s += sum(node.variants[0].implementations[0].duration_s for node in step.graph.backward)
    nodes = {node.name: node for node in graph.joint.module.graph.nodes}

    def pinned(node: ForwardNode) -> ForwardNode:
        if node.creator is not None or node.name not in nodes or not _runs_once(nodes[node.name], graph.overwritten):
            return node
        (own,) = node.implementations
        return replace(node, again=(replace(own, duration_s=own.duration_s + total_s),))

    return replace(step.graph, forward=tuple(pinned(node) for node in step.graph.forward))


def _pinned(step: CapturedStep) -> set[int]:
    return {number for number, node in enumerate(step.graph.forward) if node.again}


def _runs_once(node: Node, overwritten: frozenset[Node]) -> bool:
    """Whether an operator has effects, or reads what the forward pass gives new values."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _COMPUTES or target._schema.is_mutable:  # noqa: SLF001
        return True
    if any(name in op_name(node) for name in _SEEDS):
        return True
    if target is _NORM:
        return not node.args[5]
    return any(_leads_to(read, overwritten) for read in node.all_input_nodes)


def _leads_to(node: Node, placeholders: frozenset[Node]) -> bool:
    """Whether a value is one of these, or a view of it."""
    while node.op == "call_function" and getattr(node.target, "is_view", False):
        node = node.all_input_nodes[0]
    return node in placeholders
