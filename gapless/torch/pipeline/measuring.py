"""What the layers of a model cost on this machine, what compressors spoil of its gradients. Needs the extra `torch`.

Every error is the squared distance from the whole gradient of the batch, relative to its squared norm.
Backwards are timed by the functions of torch.distributed.pipelining that split them into the gradient of the input (I)
and that of the weights (W), so that both are what its runtime runs. Its first stage has no I: all of it is in W.
"""

from __future__ import annotations

import statistics
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from gapless.errors import InputError
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.torch.compression import HopCompressor
from gapless.torch.devices import Marks, device_of
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.pipeline.layers import Gradients, LayeredModel, load_layers, one_process, squared_error
from gapless.torch.processes import Program, read_task
from gapless.torch.ranks import run_ranks

__all__ = ["MODES", "Asked", "measure_errors", "measure_layers", "measure_together"]

_WARM_UP = 2
_TIMES = ("forward_s", "backward_s", "weight_s", "whole_backward_s")

_Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Measured:
    """One layer; times are medians. `output`: what it makes, detached."""

    forward_s: float
    backward_s: float
    weight_s: float
    whole_s: float
    parameter_bytes: int
    stash_bytes: int
    weight_stash_bytes: int
    output: Tensor


def measure_layers(
    model: LayeredModel, micro_batches: int = 1, repeats: int = 9, optimizer_ratio: float = 2.0,
    report: Callable[[str], None] = lambda line: None,
) -> PipelineProfile:  # fmt: skip
    """The profile of a model, of its first of so many micro-batches; the loss counts to the last layer.

    A time is the median of `repeats` runs after two others. `optimizer_ratio`: bytes of the optimiser for each of the
    parameters (2 for Adam in the parameters' own type); the states hold parameters and gradients besides. The stash is
    what autograd saves, parameters aside; between I and W it is what is still there, and gradients that W starts from.
    Raises `InputError`.
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
        embedding_bytes=_shared_bytes(model),
        boundary_shape=_shape(boundaries),
        source=f"measured on {device_of(value.device).name}, torch {torch.__version__}, medians of {repeats}",
        weight_stash_bytes=np.array([each.weight_stash_bytes for each in found], dtype=np.int64),
        whole_backward_s=np.array([each.whole_s for each in found]),
    )


@dataclass(frozen=True)
class Asked:
    """What processes are to measure, all of them the same; `wait_s`: the longest that one waits for another."""

    model: str
    micro_batches: int
    repeats: int
    seed: int
    wait_s: float
    processes: int = 1


def measure_together(
    profile: PipelineProfile, asked: Asked, processes: int, stop: threading.Event | None = None
) -> PipelineProfile:
    """The profile with times that so many processes measure at once, a thread each: means of their medians.

    They share caches and memory as ranks of a run on this machine do. Raises `RunError` where a process fails.
    """
    found = run_ranks(together, replace(asked, processes=processes), processes, asked.wait_s, stop)
    times = {name: np.mean([rank[name] for rank in found], axis=0) for name in _TIMES}
    how = f"medians of {asked.repeats} in {processes} processes at once"
    return replace(profile, **times, source=profile.source.rpartition(", ")[0] + f", {how}")


def together(folder: Path) -> Program:
    """What all of them do, by what is in a folder."""
    asked = read_task(folder, Asked)
    return Program(asked.processes, asked.wait_s, lambda rank: _one_of_many(asked))


def _one_of_many(asked: Asked) -> dict[str, object]:
    found = measure_layers(
        load_layers(asked.model, asked.micro_batches, asked.seed), asked.micro_batches, asked.repeats
    )
    return {name: getattr(found, name).tolist() for name in _TIMES}


def _shared_bytes(model: LayeredModel) -> int:
    """Of weights that the first and the last layer share."""
    own = model.stage(0, 1)
    return sum(_size_bytes(own.get_parameter(first)) for first, _ in model.shared)


def _shape(boundaries: list[Tensor]) -> tuple[int, int] | None:
    """Rows and columns of the activations, where all have the same."""
    shapes = {(value.numel() // value.shape[-1], value.shape[-1]) for value in boundaries}
    return shapes.pop() if len(shapes) == 1 else None


def _size_bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _measure(layer: Module, value: Tensor, loss: _Loss | None, repeats: int) -> _Measured:
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    times: list[tuple[float, ...]] = []
    for _ in range(_WARM_UP + repeats):
        apart, whole = (_timed(layer, value, loss, parameters, splits) for splits in (True, False))
        times.append((*apart, whole[-1]))
    forward_s, _, backward_s, weight_s, whole_s = (
        statistics.median(column) for column in zip(*times[_WARM_UP:], strict=True)
    )
    stash_bytes, weight_stash_bytes, output = _stashes(layer, value, loss)
    return _Measured(
        forward_s,
        backward_s if value.dtype.is_floating_point else 0.0,
        weight_s,
        whole_s,
        sum(map(_size_bytes, parameters)),
        stash_bytes,
        weight_stash_bytes,
        output,
    )


def _timed(
    layer: Module, value: Tensor, loss: _Loss | None, parameters: list[torch.nn.Parameter], splits: bool
) -> tuple[float, ...]:
    """Seconds of a forward, of what comes between, and of its backward: of I and W where it `splits`."""
    given = value.detach().requires_grad_(value.dtype.is_floating_point)
    marks = Marks(value.device)
    marks.mark()
    made = layer(given)
    last = made if loss is None else loss(made)
    marks.mark()
    gradient = None if loss is not None else torch.randn_like(made)
    marks.mark()
    _backward(marks, last, gradient, given, parameters, splits)
    return tuple(end - begin for begin, end in pairwise(marks.elapsed_s()))


class _Saved:
    """What autograd saves: as long as this is there, so is the tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _stashes(layer: Module, value: Tensor, loss: _Loss | None) -> tuple[int, int, Tensor]:
    """The bytes of the memory in which all lies that autograd saves, parameters aside: after the forward, and between I
    and W with the gradients that W starts from; and the output.
    """
    from torch.distributed.pipelining._backward import stage_backward_input

    saved = weakref.WeakSet[_Saved]()

    def note(tensor: Tensor) -> _Saved:
        kept = _Saved(tensor)
        saved.add(kept)
        return kept

    given = value.detach().requires_grad_(value.dtype.is_floating_point)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept.tensor):
        made = layer(given)
        last = made if loss is None else loss(made)
    parameters = list(layer.parameters())
    output, stash_bytes = made.detach().clone(), _memory_bytes([kept.tensor for kept in saved], parameters)
    if not given.requires_grad:
        return stash_bytes, stash_bytes, output
    gradients = None if loss is not None else [torch.ones_like(made)]
    del made
    trained = iter([parameter for parameter in parameters if parameter.requires_grad])
    _, groups = stage_backward_input([last], gradients, [given], trained)
    starts = [each for group in groups for gradient in group.get("grads") or () for each in gradient or ()]
    left = [kept.tensor for kept in saved] + [each for each in starts if each is not None]
    return stash_bytes, _memory_bytes(left, parameters), output


def _memory_bytes(tensors: Sequence[Tensor], parameters: Sequence[Tensor]) -> int:
    """Of the memory in which tensors lie, what of it is no parameter's, each place once."""
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    places = {tensor.untyped_storage().data_ptr(): int(tensor.untyped_storage().nbytes()) for tensor in tensors}
    return sum(size for place, size in places.items() if place not in own)


def _backward(
    marks: Marks, last: Tensor, gradient: Tensor | None, given: Tensor, parameters: list[torch.nn.Parameter],
    splits: bool,
) -> None:  # fmt: skip
    """Marks between I and W where it splits, and at the end; gradients add to those that are there, as in a step."""
    from torch.distributed.pipelining._backward import stage_backward, stage_backward_input, stage_backward_weight

    gradients = None if gradient is None else [gradient]
    if not (splits and given.requires_grad):
        if splits:
            marks.mark()
        stage_backward(last, gradient, (given,))
    else:
        _, groups = stage_backward_input([last], gradients, [given], iter(parameters))
        marks.mark()
        stage_backward_weight(iter(parameters), groups)
    marks.mark()


MODES = ("rank 4", "rank 16", "top 1%", "float16", "bfloat16")
"""What is measured unless somebody says otherwise."""


def measure_errors(
    model: LayeredModel, micro_batches: int = 1, modes: Sequence[str] = MODES, depths: int = 8, repeats: int = 9,
    report: Callable[[str], None] = lambda line: None,
) -> CompressionTable:  # fmt: skip
    """The table of a model: for each mode what hops and sums of gradients spoil, and what encoding and decoding take.

    `depths`: at how many boundaries between layers hops are measured, spread evenly; each micro-batch's gradient there
    is compressed by a new compressor, as the first one of a plan is: one that remembers the last gradient errs less.
    Sums are measured in every layer: those of matrices are compressed, vectors go plain but for casts. Raises
    `InputError` for a mode that sends no less than plain.
    """
    count = len(model.layers)
    if count < 2:
        raise InputError(f"model: must have two layers at least to have a boundary, got {count}")
    expected, _ = one_process(model, micro_batches)
    spread = np.linspace(1, count - 1, min(depths, count - 1)).round().astype(int)
    boundaries = sorted(set(spread.tolist()))
    middles = (np.arange(count) + 0.5) / count
    depth = np.unique(np.concatenate([np.array(boundaries) / count, middles]))
    sample = _gradient_at(model, micro_batches, boundaries[len(boundaries) // 2])
    found = []
    for mode in modes:
        report(f"measuring {mode} ...")
        hops = [squared_error(_with_hop(model, micro_batches, boundary, mode), expected) for boundary in boundaries]
        sums, sum_ratio = _sums(model, expected, mode)
        cost_s, hop_ratio = _costs(mode, sample, repeats)
        rank = HopCompressor(mode).method.rank
        ratio = sum_ratio if rank else hop_ratio
        found.append(CompressionMode(
            mode, ratio, rank, *cost_s,
            np.interp(depth, np.array(boundaries) / count, hops), np.interp(depth, middles, sums),
        ))  # fmt: skip
    source = f"measured on {device_of(sample.device).name}, torch {torch.__version__}, {micro_batches} micro-batches"
    return CompressionTable(model.name, depth, tuple(found), source)


def _with_hop(model: LayeredModel, micro_batches: int, boundary: int, mode: str) -> Gradients:
    """All gradients where those between two layers are compressed."""

    def compressed(gradient: Tensor) -> Tensor:
        compressor = HopCompressor(mode)
        return compressor.decode(compressor.encode(gradient), gradient)

    return _with_hook(model, micro_batches, boundary, compressed)


def _gradient_at(model: LayeredModel, micro_batches: int, boundary: int) -> Tensor:
    """That of the first micro-batch between two layers."""
    seen: list[Tensor] = []
    _with_hook(model, micro_batches, boundary, lambda gradient: seen.append(gradient.clone()))
    return seen[0]


def _with_hook(
    model: LayeredModel, micro_batches: int, boundary: int, change: Callable[[Tensor], Tensor | None]
) -> Gradients:
    layer = model.layers[boundary - 1][1]
    handle = layer.register_forward_hook(lambda module, inputs, output: output.register_hook(change) and None)
    try:
        return one_process(model, micro_batches)[0]
    finally:
        handle.remove()


def _sums(model: LayeredModel, expected: Gradients, mode: str) -> tuple[list[float], float]:
    """For each layer what its compressed sums spoil, times the number of layers; and the share of bytes sent."""
    norm = sum(float(gradient.double().square().sum()) for gradient in expected.values() if gradient is not None)
    apart = dict.fromkeys((name for name, _ in model.layers), 0.0)
    sent = plain = 0
    for name, gradient in expected.items():
        if gradient is None:
            continue
        plain += gradient.numel() * gradient.element_size()
        compressor = HopCompressor(mode)
        if gradient.dim() < 2 and compressor.method.error != "rounded":
            sent += gradient.numel() * gradient.element_size()
            continue
        payload = compressor.encode(gradient)
        sent += payload.numel() * payload.element_size()
        lost = compressor.decode(payload, gradient).double() - gradient.double()
        apart[name.partition(".")[0]] += float(lost.square().sum())
    return [len(apart) * each / norm if norm else 0.0 for each in apart.values()], min(1.0, sent / max(plain, 1))


def _costs(mode: str, gradient: Tensor, repeats: int) -> tuple[tuple[float, float], float]:
    """Seconds a byte to encode and to decode a gradient, medians; and the share of its bytes that is sent."""
    compressor, size_bytes = HopCompressor(mode), gradient.numel() * gradient.element_size()
    times: list[list[float]] = []
    payload = compressor.encode(gradient)
    ratio = payload.numel() * payload.element_size() / size_bytes
    if ratio >= 1:
        shape = " x ".join(map(str, gradient.shape))
        raise InputError(f"modes: {mode!r} sends no less than the plain gradient of {shape}; leave it out")
    for _ in range(_WARM_UP + repeats):
        marks = Marks(gradient.device)
        marks.mark()
        payload = compressor.encode(gradient)
        marks.mark()
        compressor.decode(payload, gradient)
        marks.mark()
        times.append(marks.elapsed_s())
    encode_s = statistics.median(after - before for before, after, _ in times[_WARM_UP:])
    decode_s = statistics.median(after - before for _, before, after in times[_WARM_UP:])
    return (encode_s / size_bytes, decode_s / size_bytes), ratio
