"""A model whose parameters and buffers are cut as planned, and the same model whole, for a capture.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from gapless.errors import InputError
from gapless.profiles.layouts.layouts import MeshLayouts
from gapless.profiles.layouts.transitions import local_shape
from gapless.torch.library import Module, Tensor, named_tensors, torch
from gapless.torch.sharding.execution.local_calls import Place
from gapless.torch.sharding.placements import placements_of

__all__ = ["WholeTensor", "cut_model", "whole_model"]


@dataclass(frozen=True)
class WholeTensor:
    """What a tensor of the model was before it was cut."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def cut_model(model: Module, layouts: MeshLayouts, mesh: DeviceMesh, place: Place) -> dict[str, WholeTensor]:
    """Make parameters DTensors, and of buffers those that the plan splits; what they were, by name.

    Raises `InputError` for a model with other parameters or buffers than the plan.
    """
    planned = {node.title: node.outputs[0] for node in layouts.nodes if node.op in ("parameter", "buffer")}
    tensors = {name: tensor for of_kind in named_tensors(model).values() for name, tensor in of_kind.items()}
    for name, layout in planned.items():
        if name not in tensors:
            raise InputError(f"plan: {name!r} must be a parameter or buffer of the model, which has none of this name")
        local_shape(tuple(tensors[name].shape), layout, place.mesh)
    made: dict[int, Tensor] = {}
    for name, layout in planned.items():
        tensor = tensors[name]
        if isinstance(tensor, torch.nn.Parameter) or "S" in layout:
            made[id(tensor)] = _cut(tensor, layout, mesh, place)
    whole = {
        name: WholeTensor(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        for name, tensor in tensors.items() if id(tensor) in made
    }  # fmt: skip
    _replace(model, {name: made[id(tensors[name])] for name in whole})
    return whole


def _cut(tensor: Tensor, layout: str, mesh: DeviceMesh, place: Place) -> Tensor:
    local = place.cut(tensor.detach(), layout)
    made: Tensor = DTensor.from_local(local, mesh, placements_of(layout), run_check=False)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made


def _replace(model: Module, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        path, _, own = name.rpartition(".")
        module = model.get_submodule(path)
        table = module._parameters if own in module._parameters else module._buffers  # noqa: SLF001
        table[own] = tensor


@contextmanager
def whole_model(model: Module, whole: Mapping[str, WholeTensor]) -> Iterator[None]:
    """Within the block, tensors that were cut are whole and hold nothing that matters."""
    tensors = {name: tensor for of_kind in named_tensors(model).values() for name, tensor in of_kind.items()}
    blank: dict[int, Tensor] = {}
    for name, of in whole.items():
        tensor = tensors[name]
        made = torch.empty_strided(of.shape, of.strides, dtype=of.dtype, device=tensor.device)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        blank.setdefault(id(tensor), torch.nn.Parameter(made, tensor.requires_grad) if is_parameter else made)
    _replace(model, {name: blank[id(tensors[name])] for name in whole})
    try:
        yield
    finally:
        _replace(model, {name: tensors[name] for name in whole})
