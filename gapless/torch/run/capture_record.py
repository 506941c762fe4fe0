"""What a plan file says of the capture that its plan is for, in plain values: nothing in it is code.

The model itself isn't in it. What is says how to capture the step again: the arguments' structure, shapes, types and
devices, the kinds of close implementations. Needs the extra `torch`.
"""

from __future__ import annotations

from typing import Any

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.torch.capture.program import CapturedStep, InputShape
from gapless.torch.close_kinds import CLOSE
from gapless.torch.library import torch

__all__ = ["CAPTURE", "capture_data", "example_arguments"]

CAPTURE = "capture"
"""The name of the record among a plan's details."""
_CONTAINERS: dict[str, Any] = {"tuple": tuple, "list": list}
_TYPES = {str(kind).removeprefix("torch."): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}


def capture_data(step: CapturedStep) -> dict[str, Any]:
    """The record of a captured step. Raises `InputError` for arguments that are not nested tuples, lists, mappings."""
    arguments, named, targets = torch.utils._pytree.tree_unflatten(step.inputs, step.structure)  # noqa: SLF001
    return {
        "name": step.graph.name,
        "close": list(step.close),
        "pytorch": str(torch.__version__),
        "is_training": step.state.is_training,
        "inputs": _data(named or arguments),
        "targets": _data(targets),
    }


def example_arguments(record: Record) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Inputs and targets in the shapes of a record, with nothing in them, and the other options of `capture`."""
    inputs, targets = (_example(record.record(key)) for key in ("inputs", "targets"))
    close = tuple(record.array("close"))
    is_known = all(kind in CLOSE for kind in close)
    if not (is_known and isinstance(targets, tuple) and isinstance(inputs, tuple | dict)):
        raise InputError(f"{record.where}: must be as `save` wrote it; write the file again")
    return inputs, targets, {"name": record.text("name"), "close": close}


def _data(value: Any) -> dict[str, Any]:
    title = type(value).__name__
    if type(value) is _CONTAINERS.get(title):
        return {title: [_data(part) for part in value]}
    if title == "dict" and all(isinstance(key, str) for key in value):
        return {"dict": {key: _data(part) for key, part in value.items()}}
    if not isinstance(value, InputShape):
        raise InputError(f"save: inputs must be nested tuples, lists and dicts of tensors, got a {title}")
    return {
        "shape": list(value.shape), "strides": list(value.strides),
        "dtype": str(value.dtype).removeprefix("torch."), "device": str(value.device),
    }  # fmt: skip


def _example(record: Record) -> Any:
    for title, kind in _CONTAINERS.items():
        if title in record:
            return kind(_example(part) for part in record.records(title))
    if "dict" in record:
        parts = record.record("dict")
        return {key: _example(parts.record(key)) for key in parts.names()}
    shape, strides = (record.integers(key, 0, 2**40) for key in ("shape", "strides"))
    kind = _TYPES[record.text("dtype", _TYPES)]
    try:
        return torch.empty_strided(shape, strides, dtype=kind, device=record.text("device"))
    except (RuntimeError, AssertionError) as error:  # a GPU that isn't there, strides that don't fit
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{record.where}: a tensor of it can't be made: {reason}") from None
