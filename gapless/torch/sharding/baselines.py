"""Published layouts as choices in the same tables: data parallelism, sharded parameters, tensor parallelism.

A baseline says how parameters and the batch are laid out. The ops follow, one after the other: each takes what costs
least with those before it, and activations change only where sums are made, if that can be. Needs the extra
`torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.layouts.greedy import AVOIDED, completed
from gapless.profiles.layouts.layouts import is_partial, replicated
from gapless.profiles.layouts.published import BASELINES
from gapless.torch.sharding.builder import Reading, Variable
from gapless.torch.sharding.columns import split_weights
from gapless.torch.sharding.joint import tensor_arguments, tensors_of
from gapless.torch.sharding.lifetimes import producer_of
from gapless.torch.sharding.placements import fits
from gapless.torch.sharding.tables import ModelTables

__all__ = ["baseline_choices", "baselines"]

Ints = NDArray[np.int64]


def baselines(model: ModelTables) -> dict[str, Ints]:
    """The choices of all baselines that the model and the mesh allow, by name, whether they fit or not."""
    found = {name: baseline_choices(model, name) for name in BASELINES}
    return {name: choices for name, choices in found.items() if choices is not None}


def baseline_choices(model: ModelTables, name: str) -> Ints | None:
    """One of `BASELINES`; None where it can't be: no transformer, one axis, or a batch that the mesh doesn't divide."""
    wanted = _LAYOUTS[name](model)
    if wanted is None:
        return None
    allowed = []
    for variable in model.variables:
        mask = np.ones(len(variable.choices), dtype=bool)
        layout = wanted.get(variable.node.name) if variable.kind in ("parameter", "input") else None
        if layout is not None:
            mask = np.array([choice.outputs[0] == layout for choice in variable.choices])
        allowed.append(mask)
    return completed(model.tables, allowed, _avoided(model))


def _avoided(model: ModelTables) -> dict[int, Ints]:
    """Edges along which an activation would change otherwise than by making the sum that it is."""
    active = _of_data(model)
    known: dict[Reading, Ints] = {}
    found: dict[int, Ints] = {}
    for edge, ((first, second), reading) in enumerate(zip(model.tables.edges.tolist(), model.readings, strict=True)):
        name, reader = model.variables[first].node.name, model.variables[second]
        if reading is not None and name in active and reader.kind == "op":
            if reading not in known:
                rows = [[0 if _only_sums(one, other) else AVOIDED for other in reading.after] for one in reading.before]
                known[reading] = np.array(rows, dtype=np.int64)
            found[edge] = known[reading]
    return found


def _only_sums(before: str, after: str) -> bool:
    pairs = zip(before.split(","), after.split(","), strict=True)
    return all(one == other or (is_partial(one) and other == "R") for one, other in pairs)


def _of_data(model: ModelTables) -> set[str]:
    """Names of what depends on the step's inputs."""
    active: set[str] = set()
    for variable in model.variables:
        if variable.kind == "input":
            active.add(variable.node.name)
        elif variable.kind == "op":
            producers = [producer_of(argument)[0].name for argument in tensor_arguments(variable.node)]
            if active & set(producers):
                active.add(variable.node.name)
    return active


def _laid_out(
    model: ModelTables, batch_axes: int, layout_of: Callable[[Variable, tuple[int, ...]], str]
) -> dict[str, str] | None:
    """Layouts of parameters and inputs: the batch is split along the first `batch_axes` axes."""
    mesh = model.costs.shape
    wanted, split = {}, False
    batch = ",".join(["S0"] * batch_axes + ["R"] * (len(mesh) - batch_axes))
    for variable in model.variables:
        tensor = tensors_of(variable.node)[0]
        if tensor is None or variable.kind not in ("parameter", "input"):
            continue
        shape = tuple(tensor.shape)
        wanted[variable.node.name] = replicated(len(mesh))
        if variable.kind == "parameter":
            wanted[variable.node.name] = layout_of(variable, shape)
        elif batch_axes and fits(batch, shape, mesh):
            wanted[variable.node.name], split = batch, True
    return wanted if split or not batch_axes else None


def _first_split(shape: tuple[int, ...], layout: str, axes: slice, mesh: tuple[int, ...]) -> str:
    """A layout further split along some axes: the first dimension that can be; the layout itself where none can."""
    for dimension in range(len(shape)):
        parts = layout.split(",")
        parts[axes] = [f"S{dimension}"] * len(parts[axes])
        if fits(",".join(parts), shape, mesh):
            return ",".join(parts)
    return layout


def _ddp(model: ModelTables) -> dict[str, str] | None:
    axes = len(model.costs.shape)
    return _laid_out(model, axes, lambda variable, shape: replicated(axes))


def _fsdp(model: ModelTables) -> dict[str, str] | None:
    mesh = model.costs.shape
    return _laid_out(
        model, len(mesh), lambda variable, shape: _first_split(shape, replicated(len(mesh)), slice(None), mesh)
    )


def _hsdp(model: ModelTables) -> dict[str, str] | None:
    mesh = model.costs.shape
    if len(mesh) == 1:
        return None
    return _laid_out(
        model, len(mesh), lambda variable, shape: _first_split(shape, replicated(len(mesh)), slice(-1, None), mesh)
    )


def _megatron(model: ModelTables) -> dict[str, str] | None:
    return _tensor_parallel(model, shards_rest=False)


def _megatron_fsdp(model: ModelTables) -> dict[str, str] | None:
    return _tensor_parallel(model, shards_rest=True) if len(model.costs.shape) > 1 else None


def _tensor_parallel(model: ModelTables, *, shards_rest: bool) -> dict[str, str] | None:
    """Products split along the last axis; with `shards_rest`, parameters are split along the others too."""
    mesh = model.costs.shape
    dimensions = split_weights(model.joint)
    if not dimensions:
        return None

    def layout_of(variable: Variable, shape: tuple[int, ...]) -> str:
        dimension = dimensions.get(variable.node)
        layout = ",".join(["R"] * (len(mesh) - 1) + ["R" if dimension is None else f"S{dimension}"])
        layout = layout if fits(layout, shape, mesh) else replicated(len(mesh))
        return _first_split(shape, layout, slice(0, -1), mesh) if shards_rest else layout

    return _laid_out(model, len(mesh) - 1, layout_of)


_LAYOUTS: Mapping[str, Callable[[ModelTables], dict[str, str] | None]] = {
    "ddp": _ddp, "fsdp": _fsdp, "hsdp": _hsdp, "megatron": _megatron, "megatron_fsdp": _megatron_fsdp,
}  # fmt: skip
