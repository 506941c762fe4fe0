"""What the layers of a model cost on this machine. Needs the extra `torch`.

Backwards are timed by the functions of torch.distributed.pipelining that split them into the gradient of the input (I)
and that of the weights (W), so that both are what its runtime runs. Its first stage has no I: all of it is in W.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gapless.errors import InputError
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.torch.library import Marks, device_name, torch
from gapless.torch.pipeline.layers import LayeredModel

__all__ = ["measure_layers"]

_WARM_UP = 2


@dataclass(frozen=True)
class _Measured:
    """One layer; times are medians. `output`: what it makes, detached."""

    forward_s: float
    backward_s: float
    weight_s: float
    parameter_bytes: int
    stash_bytes: int
    output: Any


def measure_layers(
    model: LayeredModel, micro_batches: int = 1, repeats: int = 9, optimizer_ratio: float = 2.0,
    report: Callable[[str], None] = lambda line: None,
) -> PipelineProfile:  # fmt: skip
    """The profile of a model, of its first of so many micro-batches; the loss counts to the last layer.

    A time is the median of `repeats` runs after two others. `optimizer_ratio`: bytes of the optimiser for each of the
    parameters (2 for Adam in the parameters' own type); the states hold parameters and gradients besides. The stash is
    what autograd saves, parameters aside. Raises `InputError`.
    """
    (value, target), *_ = model.split(micro_batches)
    found: list[_Measured] = []
    for number, (name, layer) in enumerate(model.layers):
        report(f"measuring {name}, layer {number + 1} of {len(model.layers)} ...")
        loss = (lambda output: model.loss(output, target)) if number == len(model.layers) - 1 else None
        try:
            found.append(_measure(layer, value, loss, repeats))
        except RuntimeError as error:
            line = next(iter(str(error).strip().splitlines()), "")
            raise InputError(f"model: layer {name} can't be measured: {line}") from None
        value = found[-1].output
    parameters = np.array([each.parameter_bytes for each in found], dtype=np.int64)
    boundaries = [each.output for each in found[:-1]]
    return PipelineProfile(
        name=model.name,
        layer_names=tuple(name for name, _ in model.layers),
        forward_s=np.array([each.forward_s for each in found]),
        backward_s=np.array([each.backward_s for each in found]),
        weight_s=np.array([each.weight_s for each in found]),
        parameter_bytes=parameters,
        state_bytes=np.rint(parameters * (2 + optimizer_ratio)).astype(np.int64),
        stash_bytes=np.array([each.stash_bytes for each in found], dtype=np.int64),
        boundary_bytes=np.array([*map(_size_bytes, boundaries), 0], dtype=np.int64),
        boundary_shape=_shape(boundaries),
        source=f"measured on {device_name(value.device)}, torch {torch.__version__}, medians of {repeats}",
    )


def _shape(boundaries: list[Any]) -> tuple[int, int] | None:
    """Rows and columns of the activations, where all have the same."""
    shapes = {(value.numel() // value.shape[-1], value.shape[-1]) for value in boundaries}
    return shapes.pop() if len(shapes) == 1 else None


def _size_bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _measure(layer: Any, value: Any, loss: Callable[[Any], Any] | None, repeats: int) -> _Measured:
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    times: list[tuple[float, ...]] = []
    for _ in range(_WARM_UP + repeats):
        given = value.detach().requires_grad_(value.dtype.is_floating_point)
        marks = Marks(value.device)
        marks.mark()
        made = layer(given)
        last = made if loss is None else loss(made)
        marks.mark()
        gradient = None if loss is not None else torch.randn_like(made)
        marks.mark()
        _backward(marks, last, gradient, given, parameters)
        times.append(tuple(end - begin for begin, end in pairwise(marks.elapsed_s())))
    forward_s, _, backward_s, weight_s = (statistics.median(column) for column in zip(*times[_WARM_UP:], strict=True))
    stash_bytes, output = _stash(layer, value, loss)
    return _Measured(
        forward_s,
        backward_s if value.dtype.is_floating_point else 0.0,
        weight_s,
        sum(map(_size_bytes, parameters)),
        stash_bytes,
        output,
    )


def _stash(layer: Any, value: Any, loss: Callable[[Any], Any] | None) -> tuple[int, Any]:
    """The bytes of the memory in which all lies that autograd saves, parameters aside; and the output."""
    saved: dict[int, int] = {}

    def note(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = int(storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        made = layer(value.detach().requires_grad_(value.dtype.is_floating_point))
        last = made if loss is None else loss(made)
    own = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    del last  # which has held all of it until now
    return sum(size for place, size in saved.items() if place not in own), made.detach()


def _backward(marks: Marks, last: Any, gradient: Any, given: Any, parameters: list[Any]) -> None:
    """Marks between I and W and after W; gradients add to those that are there, as in a step."""
    from torch.distributed.pipelining._backward import stage_backward, stage_backward_input, stage_backward_weight

    gradients = None if gradient is None else [gradient]
    if not given.requires_grad:
        marks.mark()
        stage_backward(last, gradient, (given,))
    else:
        _, groups = stage_backward_input([last], gradients, [given], iter(parameters))
        marks.mark()
        stage_backward_weight(iter(parameters), groups)
    marks.mark()
