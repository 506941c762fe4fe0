"""What an op's inputs and outputs may be on one axis of a mesh: DTensor's own propagation rules, asked for all of them.

The one module that talks to DTensor's private rules; proven with PyTorch 2.13. DTensor has them in two forms: lists for
one axis, with the dimensions of shards left open, and functions of the layouts that the inputs have. Needs the extra
`torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch.distributed.tensor import DTensor
from torch.distributed.tensor._decompositions import DecompShardingStrategy
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, TupleStrategy
from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

from gapless.torch.library import Argument, Node, torch
from gapless.torch.sharding.joint import tensor_arguments, tensors_of
from gapless.torch.sharding.placements import MASK, Meta, fits, mesh_of, meta_of, part_of, placement_of, spec_of

__all__ = ["AxisRule", "argument_metas", "axis_rules"]

_ASKED = ("R", "P")
"""Beside shards, what inputs of rules that are functions are tried with."""
_aten = torch.ops.aten


@dataclass(frozen=True)
class AxisRule:
    """Parts of the layouts of an op's tensors on one axis: `inputs` as they must be, `outputs` as they then are; an
    empty text for an output that is left out."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


_Rules: TypeAlias = list[AxisRule]


def argument_metas(node: Node) -> list[Meta]:
    """Of the tensors that a node takes, in the order of `tensor_arguments`."""
    return [meta_of(tensors_of(argument)[0]) for argument in tensor_arguments(node)]


def axis_rules(node: Node, devices: int) -> _Rules | None:
    """All that DTensor's rules allow a node on an axis of so many devices, whole on each first. None without a rule.

    Shards are even. Where several have the same inputs, DTensor takes the first, and so does this.
    """
    metas = argument_metas(node)
    if not metas:
        return []
    whole = AxisRule(("R",) * len(metas), tuple("" if value is None else "R" for value in tensors_of(node)))
    found = _found(node, metas, devices)
    if found is None:
        return None
    rules = {whole.inputs: whole}
    for rule in found:
        if _is_even(rule, node, metas, devices):
            rules.setdefault(rule.inputs, rule)
    return list(rules.values())


def _found(node: Node, metas: Sequence[Meta], devices: int) -> _Rules | None:
    own = _OWN.get(node.target)
    if own is not None:
        return list(own(node, metas))
    if any(isinstance(value, torch.fx.Node) for value in node.kwargs.values()):
        return None
    propagator = DTensor._op_dispatcher.sharding_propagator  # noqa: SLF001
    if node.target in propagator.op_single_dim_strategy_funcs:
        return list(_listed(node, metas, propagator.op_single_dim_strategy_funcs[node.target].func))
    if node.target in propagator.op_strategy_funcs or DecompShardingStrategy.has_decomp(node.target):
        return list(_asked(node, metas, devices))
    return None


def _is_even(rule: AxisRule, node: Node, metas: Sequence[Meta], devices: int) -> bool:
    shapes = [meta.shape for meta in metas], [() if value is None else value.shape for value in tensors_of(node)]
    parts = rule.inputs, rule.outputs
    return all(
        not part or fits(part, shape, (devices,))
        for side in (0, 1)
        for part, shape in zip(parts[side], shapes[side], strict=True)
    )


def _listed(node: Node, metas: Sequence[Meta], rule: Callable[..., Sequence[Sequence[object]]]) -> Iterator[AxisRule]:
    """From a rule that is a list: outputs first, a placeholder with its dimension for each shard."""
    values = iter(metas)
    arguments = torch.fx.node.map_arg(node.args, lambda _: next(values))
    for placements in rule(node.target, arguments, dict(node.kwargs)):
        parts = [_part(placement) for placement in placements]
        if None not in parts:
            count = len(parts) - len(metas)
            yield _rule(parts[count:], parts[:count], node)


def _part(placement: object) -> str | None:
    if placement is None:
        return ""
    return f"S{placement.dim}" if isinstance(placement, _ShardingPlaceholder) else part_of(placement)


def _rule(inputs: Sequence[str | None], outputs: Sequence[str | None], node: Node) -> AxisRule:
    """With outputs as many as the node has: one that is said of all stands for each, and absent ones are empty.

    An embedding's numbers of rows are whole before DTensor masks them.
    """
    made = tensors_of(node)
    each = outputs if len(outputs) == len(made) else [outputs[0]] * len(made)
    parts = tuple("" if value is None else str(part) for part, value in zip(each, made, strict=True))
    return AxisRule(tuple("R" if part == MASK else str(part) for part in inputs), parts)


def _asked(node: Node, metas: Sequence[Meta], devices: int) -> Iterator[AxisRule]:
    """From a rule that is a function of inputs' layouts: what it makes of each part on all inputs that can have it."""
    dimensions = max(len(meta.shape) for meta in metas)
    for part in (*_ASKED, *(f"S{dimension}" for dimension in range(dimensions))):
        parts = [part if _can_have(part, meta, devices) else "R" for meta in metas]
        if part == "R" or part in parts:
            yield from _answers(node, metas, parts, devices)


def _can_have(part: str, meta: Meta, devices: int) -> bool:
    if part == "P":
        return bool(meta.dtype.is_floating_point)
    return part == "R" or (int(part[1:]) < len(meta.shape) and fits(part, meta.shape, (devices,)))


def _answers(node: Node, metas: Sequence[Meta], parts: Sequence[str], devices: int) -> Iterator[AxisRule]:
    mesh = mesh_of((devices,))
    pairs = zip(metas, parts, strict=True)
    specs = iter([spec_of(mesh, (placement_of(part),), meta) for meta, part in pairs])
    propagator = DTensor._op_dispatcher.sharding_propagator  # noqa: SLF001
    rule = propagator.op_strategy_funcs.get(node.target)
    try:
        if rule is None:  # it is made of ops that have rules
            propagator.decomp_strategy.ensure_schema_info(node.target)
            made = propagator.decomp_strategy.propagate_strategy(_schema(node, lambda _: next(specs)))
        else:
            made = rule(_schema(node, lambda _: OpStrategy([OpSpec(next(specs))])))
    except (AssertionError, IndexError, KeyError, NotImplementedError, RuntimeError, ValueError):
        return  # a rule refuses layouts that it can't take by whatever its code runs into
    for option in made.strategies if isinstance(made, OpStrategy) else ():
        if (found := _of_option(option, node, len(metas))) is not None:
            yield found


def _schema(node: Node, known: Callable[[Node], object]) -> OpSchema:
    """A node's call with what rules know in place of its tensors."""

    def argument_of(argument: Argument) -> object:
        if isinstance(argument, torch.fx.Node):
            return known(argument)
        if isinstance(argument, list | tuple) and any(isinstance(each, torch.fx.Node) for each in argument):
            opened = [argument_of(each) for each in argument]
            return TupleStrategy(opened) if all(isinstance(each, OpStrategy) for each in opened) else opened
        return argument

    propagator = DTensor._op_dispatcher.sharding_propagator  # noqa: SLF001
    arguments = tuple(argument_of(argument) for argument in node.args)
    info = propagator.op_to_schema_info.get(node.target)
    return OpSchema(node.target, arguments, dict(node.kwargs), schema_info=info)


def _of_option(option: OpSpec, node: Node, count: int) -> AxisRule | None:
    outputs = option.output_specs if isinstance(option.output_specs, tuple | list) else (option.output_specs,)
    inputs = option.input_specs or (option.output_spec,) * count
    parts = [["" if spec is None else part_of(spec.placements[0]) for spec in specs] for specs in (inputs, outputs)]
    if len(inputs) != count or None in parts[0] or None in parts[1]:
        return None
    return _rule(parts[0], parts[1], node)


def _attention(node: Node, metas: Sequence[Meta]) -> Iterator[AxisRule]:
    """Attention on the CPU, for which DTensor has no rule: batch and heads, the first dimensions of all its tensors,
    are independent of each other. An additive mask is whole."""
    mask = node.kwargs.get("attn_mask")
    for part in ("S0", "S1"):
        inputs = tuple("R" if argument is mask else part for argument in tensor_arguments(node))
        yield AxisRule(inputs, (part,) * len(tensors_of(node)))


def _copy(node: Node, metas: Sequence[Meta]) -> Iterator[AxisRule]:
    """What is as its only input."""
    for part in (f"S{dimension}" for dimension in range(len(metas[0].shape))):
        yield AxisRule((part,), (part,))


_OWN: dict[object, Callable[[Node, Sequence[Meta]], Iterator[AxisRule]]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,  # noqa: SLF001
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention,  # noqa: SLF001
    _aten.lift_fresh_copy.default: _copy,
}
"""Ops for which DTensor has no rule, and ours."""
