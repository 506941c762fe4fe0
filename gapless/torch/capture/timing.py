"""Profiling of captured steps: time and workspace of every operator, on the device that the step was captured for.

Operators with the same function, shapes and options are measured once; a cache file keeps what was measured for the
next time on the same device. The share of zeros in what a model's ReLUs make is measured too: what sparse storage of
them would save. Needs the extra `torch`.
"""

from __future__ import annotations

import inspect
import json
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph
from gapless.torch.capture.operators import table_rows
from gapless.torch.capture.program import Call, CapturedStep, Operator
from gapless.torch.capture.storages import allocated_bytes, tensors_in
from gapless.torch.devices import device_of, measure_peak
from gapless.torch.islands.island import island_times
from gapless.torch.library import Argument, Made, Node, Tensor, has_layout, named_tensors, torch
from gapless.units import format_count

from torch.utils._python_dispatch import TorchDispatchMode  # isort: skip  (after the line that names the extra)

__all__ = ["Measured", "profile", "share_of_zeros"]

aten = torch.ops.aten
_CLIPPING = frozenset({aten.relu.default, aten.relu_.default, aten.hardtanh.default, aten.hardtanh_.default})

_ENOUGH_S = 0.01
"""A short operator runs more often, until it took so long in all."""
_MOST_RUNS = 50
_BYTES_PER_S = 5e9
"""For an operator that can't be run on made-up data: as if it took no longer than reading and writing do."""
_FORMAT, _VERSION = "gapless.torch-ops", 2


@dataclass(frozen=True)
class Measured:
    """What a call takes: median time, and the most memory while it runs, its outputs included."""

    duration_s: float
    peak_bytes: int
    is_estimate: bool = False


def profile(
    step: CapturedStep, cache: str | Path | None = None, repeats: int = 5, namespaces: Collection[str] = ()
) -> CapturedStep:
    """The step with measured times and workspaces in its graph.

    Every distinct operator runs once to warm up and then at least `repeats` times, on random data of its own, so that
    the model itself needn't fit. `cache`: a JSON file, read if it is there and written. An operator that can't run
    on such data gets an estimate from the bytes that it moves; the graph's `source` says how many did. `namespaces`: if
    there are any, PyTorch's operators of others are estimated, too, since running them may have effects.
    Raises `InputError` for fewer than one repeat, and for a file of something else.
    """
    if repeats < 1:
        raise InputError(f"repeats must be >= 1, got {repeats}")
    device = step.device
    where = f"{device_of(device).name}, PyTorch {torch.__version__}"
    known = {} if cache is None else _read(Path(cache))
    measured_here = dict(known.get(where, {}))
    with torch.no_grad(), device_of(device).forked_random():
        measured = list(_times(step, measured_here, repeats, namespaces))
    if cache is not None and measured_here.keys() != known.get(where, {}).keys():
        latest = _read(Path(cache))  # others may have written meanwhile
        _write(Path(cache), {**latest, where: {**latest.get(where, {}), **measured_here}})
    estimates = sum(times.is_estimate for calls in measured for times in calls)
    source = f"captured and timed on {where}" + (f"; {format_count(estimates)} ops estimated" if estimates else "")
    return replace(step, graph=_timed(step, measured, source))


# -- the graph ---------------------------------------------------------------------------------------------------------


def _timed(step: CapturedStep, measured: list[list[Measured]], source: str) -> TrainingGraph:
    """The step's graph with what was measured of each operator's calls."""
    graph, count = step.graph, len(step.graph.forward)
    pairs = list(zip(step.operators, measured, strict=True))
    forward = [_forward(node, *pair) for node, pair in zip(graph.forward, pairs[:count], strict=True)]
    for node, (operator, times) in zip(graph.forward, pairs[:count], strict=True):
        for made, implementation in () if operator is None else _intermediates(graph, node, operator, times):
            forward[made] = replace(forward[made], implementations=(implementation,))
    base = [graph.fixed_bytes, *(node.fixed_bytes for node in graph.backward)]
    backward = [
        _backward(node, step, operator, times, max(0, after - before))
        for node, (operator, times), (before, after) in zip(graph.backward, pairs[count:], pairwise(base), strict=True)
    ]
    return replace(graph, forward=tuple(forward), backward=tuple(backward), source=source)


def _forward(node: ForwardNode, operator: Operator | None, measured: list[Measured]) -> ForwardNode:
    if operator is None or not measured:
        return node
    plain = next(times for call, times in zip(operator.calls, measured, strict=True) if not call.in_place)
    implementation = _implementation(max(plain.peak_bytes, operator.made_bytes), node.output_bytes, plain.duration_s)
    if node.overwrites is None:
        return replace(node, implementations=(implementation,))
    (written,) = [times for call, times in zip(operator.calls, measured, strict=True) if call.in_place]
    # In place, the same arithmetic takes the same time.
    in_place = replace(implementation, workspace_bytes=written.peak_bytes - node.output_bytes)
    return replace(node, implementations=(implementation,), in_place=(in_place,))


def _intermediates(
    graph: TrainingGraph, node: ForwardNode, operator: Operator, measured: list[Measured]
) -> Iterator[tuple[int, Implementation]]:
    """The intermediates that a call makes beside those of the plain one, and what making them adds.

    They are made in the same call: what it reads is still there, even if a plan frees it after the plain one.
    """
    for call, times in zip(operator.calls, measured, strict=True):
        if call.makes is not None:
            read_bytes = sum(graph.forward[source].output_bytes for source in node.inputs)
            counted_bytes = node.output_bytes + graph.forward[call.makes].output_bytes
            duration_s = max(0.0, times.duration_s - measured[0].duration_s)
            yield call.makes, _implementation(times.peak_bytes + read_bytes, counted_bytes, duration_s)


def _backward(
    node: BackwardNode, step: CapturedStep, operator: Operator | None, measured: list[Measured], grown_bytes: int
) -> BackwardNode:
    """`grown_bytes`: of the gradients that appear with this node."""
    assert operator is not None
    counted = node.output_bytes + grown_bytes
    copied = [step.storages.fake[gradient.value] for gradient in operator.gradients if not gradient.is_taken]
    least_bytes = operator.made_bytes + sum(map(allocated_bytes, copied))
    variants = []
    for variant, call, times in zip(node.variants, operator.calls, measured, strict=True):
        if call.in_place:
            implementation = Implementation(times.duration_s, times.peak_bytes - counted)
        else:
            implementation = _implementation(max(times.peak_bytes, least_bytes), counted, times.duration_s)
        variants.append(replace(variant, implementations=(implementation,)))
    return replace(node, variants=tuple(variants))


def _implementation(peak_bytes: int, counted_bytes: int, duration_s: float) -> Implementation:
    return Implementation(duration_s, max(0, peak_bytes - counted_bytes))


# -- measuring ---------------------------------------------------------------------------------------------------------


def _times(
    step: CapturedStep, known: dict[str, Measured], repeats: int, namespaces: Collection[str]
) -> Iterator[list[Measured]]:
    """Of each operator, what its calls take, with the views that are made for it."""
    viewed: set[Node] = set()
    for operator in step.operators:
        times: list[Measured] = []
        read: set[Node] = set()
        for call in () if operator is None else operator.calls:
            if operator is None or not _may_run(call, namespaces):
                times.append(_estimate(call, step))
                continue
            views = step.storages.views_under((call.arguments, call.options))
            made = [Call.of(view) for view in views - viewed]
            took = _measure(operator, call, step, known, repeats, step.device)
            views_s = sum(_view_s(view, step, known, repeats) for view in made if _may_run(view, namespaces))
            times.append(replace(took, duration_s=took.duration_s + views_s))
            read |= views
        viewed |= read
        yield times


def _measure(
    operator: Operator, call: Call, step: CapturedStep, known: dict[str, Measured], repeats: int, device: torch.device
) -> Measured:
    if (times := island_times(call.function)) is not None:
        return Measured(*times)
    key = _key(call, step)
    if key not in known:
        try:
            known[key] = _run(operator, call, step, repeats, device)
        except (RuntimeError, IndexError, ValueError):  # made-up data that the operator doesn't take
            known[key] = _estimate(call, step)
    return known[key]


def _view_s(call: Call, step: CapturedStep, known: dict[str, Measured], repeats: int) -> float:
    """Seconds for making a view; nothing for those that only take one of several, or need their very data."""
    if not isinstance(call.function, torch._ops.OpOverload):  # noqa: SLF001
        return 0.0
    key = _key(call, step)
    if key not in known:
        try:
            arguments, options = torch.fx.node.map_arg((call.arguments, call.options), lambda node: _value(node, step))
            known[key] = Measured(_median_s(call, arguments, options, repeats, step.device), 0)
        except (RuntimeError, IndexError, ValueError):
            known[key] = Measured(0.0, 0, is_estimate=True)
    return known[key].duration_s


def _median_s(
    call: Call, arguments: tuple[Made, ...], options: dict[str, Made], repeats: int, device: torch.device
) -> float:
    """With what the call itself takes, since a plan that runs pays it."""
    taken: list[float] = []
    while len(taken) < repeats or (sum(taken) < _ENOUGH_S and len(taken) < _MOST_RUNS):
        taken.append(device_of(device).timed_s(lambda: call.function(*arguments, **options)))
    return statistics.median(taken)


def _may_run(call: Call, namespaces: Collection[str]) -> bool:
    if not namespaces:
        return True
    return isinstance(call.function, torch._ops.OpOverload) and call.function.namespace in namespaces  # noqa: SLF001


def _run(operator: Operator, call: Call, step: CapturedStep, repeats: int, device: torch.device) -> Measured:
    arguments, options = torch.fx.node.map_arg((call.arguments, call.options), lambda node: _value(node, step))
    call.function(*arguments, **options)
    peak_bytes, made = measure_peak(lambda: call.function(*arguments, **options), device)
    if not call.in_place:  # where the step copies what it returns, both are there at once
        whole = sum(int(tensor.untyped_storage().nbytes()) for tensor in tensors_in(made))
        layouts = _layouts(operator, step, made)
        copied = sum(_copied(tensor, strides) for tensor, strides in zip(tensors_in(made), layouts, strict=True))
        peak_bytes = max(peak_bytes, whole + copied)
    del made
    return Measured(_median_s(call, arguments, options, repeats, device), peak_bytes)


def _layouts(operator: Operator, step: CapturedStep, made: Made) -> list[tuple[int, ...] | None]:
    """The strides that each tensor an operator returns was traced with; None where nobody reads it."""
    traced = {place: step.storages.fake[value].stride() for value, place, _ in operator.values}
    if isinstance(made, torch.Tensor):
        return [traced.get(None)]
    return [traced.get(place) for place, part in enumerate(made) if isinstance(part, torch.Tensor)]


def _copied(tensor: Tensor, strides: tuple[int, ...] | None) -> int:
    """The bytes of the copy that a tensor needs if it lies in too large a buffer, or in another layout."""
    size_bytes = int(tensor.numel() * tensor.element_size())
    is_laid_out = strides is None or has_layout(tensor, strides)
    return size_bytes if tensor.untyped_storage().nbytes() > size_bytes or not is_laid_out else 0


def _estimate(call: Call, step: CapturedStep) -> Measured:
    read = step.storages.read_by((call.arguments, call.options))
    moved = sum(step.storages.size_bytes[storage] for storage in read)
    return Measured(moved / _BYTES_PER_S, 0, is_estimate=True)


def _value(node: Node, step: CapturedStep) -> Made:
    """Data for an argument: made up, but places, masks and other whole numbers by what makes them in the step.

    An operator may trust them (the space that a recurrent layer leaves for its gradient) and run wild on others.
    """
    fake = step.storages.fake[node]
    if not isinstance(fake, torch.Tensor | tuple | list):
        return fake  # a size, of graphs whose shapes the compiler leaves open
    if node.op != "call_function" or all(tensor.dtype.is_floating_point for tensor in tensors_in(fake)):
        return _made_up(fake, table_rows(node, step.storages))
    arguments, options = torch.fx.node.map_arg((node.args, node.kwargs), lambda read: _value(read, step))
    return node.target(*arguments, **options)


def _made_up(fake: Made, rows: int = 1) -> Made:
    """Random data in the shape and strides of a tensor; whole numbers are places in any table of so many rows.

    Places that are all alike would find the same row in the cache each time.
    """
    if not isinstance(fake, torch.Tensor):
        return type(fake)(_made_up(part, rows) for part in fake)
    length = 1 + sum((size - 1) * stride for size, stride in zip(fake.shape, fake.stride(), strict=True))
    options = {"dtype": fake.dtype, "device": fake.device}
    if fake.dtype.is_floating_point:
        flat = torch.randn(max(length, 0), **options)
    elif fake.dtype == torch.bool:
        flat = torch.rand(max(length, 0), device=fake.device) > 0.1
    else:
        flat = torch.randint(rows, (max(length, 0),), **options)
    return flat.as_strided(fake.shape, fake.stride())


def _key(call: Call, step: CapturedStep) -> str:
    """What two calls that take the same time have in common."""

    def shapes(node: Node) -> _Bare:
        rows = table_rows(node, step.storages)
        places = f" < {rows}" if rows > 1 else ""
        return _Bare(", ".join(_shape(fake) + places for fake in tensors_in(step.storages.fake[node])))

    arguments, options = torch.fx.node.map_arg((call.arguments, call.options), shapes)
    function = call.function
    name = getattr(function, "__qualname__", None) if inspect.isfunction(function) else None
    return f"{name or function}{arguments}{options or ''}"


class _Bare(str):
    """Text that shows itself without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _shape(fake: Tensor) -> str:
    return f"{str(fake.dtype).removeprefix('torch.')}{list(fake.shape)}/{list(fake.stride())}"


# -- the cache file ----------------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, dict[str, Measured]]:
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] != _FORMAT or data["version"] != _VERSION:
            raise KeyError
        return {
            where: {
                key: Measured(float(duration_s), int(peak_bytes))
                for key, (duration_s, peak_bytes, *_) in entries.items()
            }
            for where, entries in data["ops"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise InputError(f"{path}: must be a {_FORMAT} file of version {_VERSION}; delete it to measure anew") from None


def _write(path: Path, known: dict[str, dict[str, Measured]]) -> None:
    ops = {
        where: {
            key: [times.duration_s, times.peak_bytes] for key, times in sorted(entries.items()) if not times.is_estimate
        }
        for where, entries in known.items()
    }
    write_text(path, json.dumps({"format": _FORMAT, "version": _VERSION, "ops": ops}, indent=1) + "\n")


class _Counting(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Looks at what ReLUs return."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Made],
        types: Sequence[type],
        args: Sequence[Argument] = (),
        kwargs: Mapping[str, Argument] | None = None,
    ) -> Made:
        made = func(*args, **(kwargs or {}))
        if func in _CLIPPING and isinstance(made, torch.Tensor):
            self.shares.append(1.0 - float(made.count_nonzero()) / max(1, made.numel()))
        return made


def share_of_zeros(
    model: torch.nn.Module, example_inputs: Sequence[object] | Mapping[str, object]
) -> tuple[float, ...]:
    """The share of zeros in what each ReLU, ReLU6 or hardtanh of a model makes, in the order of its forward pass.

    `example_inputs`: arguments of the model, positional or by name. It runs on them once; buffers and random states are
    as before. Parameters that ask for shares of zeros, such as `encoding.zeros`, take them as they are.
    """
    buffers = named_tensors(model)["buffer"]
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    counting = _Counting()
    try:
        with torch.no_grad(), torch.random.fork_rng(), counting:
            if isinstance(example_inputs, Mapping):
                model(**example_inputs)
            else:
                model(*example_inputs)
    finally:
        with torch.no_grad():
            for name, buffer in buffers.items():
                buffer.copy_(before[name])
    return tuple(counting.shares)
