"""Looking at an island: it runs a few times on real arguments, by which its shapes, memory and time are known.

Needs the extra `torch`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from gapless.torch.devices import device_of, random_state, set_random_state
from gapless.torch.islands.island import Body, Entered, Island, Output, Returned
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.step_state import StepState

from torch.multiprocessing.reductions import StorageWeakRef  # isort: skip  (after the line that names the extra)

__all__ = ["looked_at"]

_REPEATS = 3


def looked_at(
    title: str, body: Body, given: Sequence[Tensor], argument_count: int, module: Module | None
) -> tuple[Island, tuple[Tensor, ...]]:
    """An island, and what it returns on these tensors; random states and buffers are as after one run.

    `module`: whose buffers it may change. It runs once to see what it returns and what autograd holds, once for its
    memory and whether it gives the same again, and for its time.
    """
    wanted = tuple(number for number, tensor in enumerate(given) if tensor.requires_grad)
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    island = Island(
        title,
        body,
        argument_count,
        tuple(map(Output.of, given)),
        wanted if torch.is_grad_enabled() else (),
        tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds),
        torch.is_grad_enabled(),
    )
    plain = [tensor.detach() for tensor in given]
    device = next((tensor.device for tensor in plain), torch.device("cpu"))
    before = StepState.of(module if module is not None else torch.nn.Module(), [device])
    settings = _settings(module)
    first, island = _first(island, plain)
    is_pure = settings == _settings(module) and all(torch.equal(buffer, was) for buffer, was in before.buffers)
    before.put_back()
    island, is_same = _measured(island, plain, first, device)
    taken: list[tuple[float, float]] = []
    for _ in range(_REPEATS):
        before.put_back()
        outputs, state, times = _timed(island, plain, device)
        taken.append(times)
    set_random_state(state, device)
    durations = (statistics.median(one for one, _ in taken), statistics.median(other for _, other in taken))
    island = replace(island, duration_s=durations, is_repeatable=is_pure and is_same)
    return island, _with_gradients(island, outputs)


def _settings(module: Module | None) -> list[dict[str, object]]:
    """Plain attributes of a module and of what is in it, and which buffers there are."""
    found: list[dict[str, object]] = []
    for part in () if module is None else module.modules():
        own = vars(part)
        plain = {name: value for name, value in own.items() if isinstance(value, bool | int | float | str)}
        found.append(plain | {name: id(buffer) for name, buffer in own["_buffers"].items()})
    return found


def _first(island: Island, plain: Sequence[Tensor]) -> tuple[list[Tensor], Island]:
    """Copies of the outputs of a first run, and the island with what was seen in it."""
    returned, outputs, references = _referring(island, plain)
    held = {number for number, reference in enumerate(references) if reference is not None and not reference.expired()}
    return outputs, replace(
        island,
        structure=returned.structure,
        parts=returned.parts,
        outputs=returned.shapes,
        reads=returned.reads,
        copied=frozenset(held),
    )


def _referring(island: Island, plain: Sequence[Tensor]) -> tuple[Returned, list[Tensor], list[StorageWeakRef | None]]:
    """A run on copies of its arguments, with copies of its outputs; whether the memory of both is still held then."""
    count = island.argument_count
    copies = [tensor.clone() for tensor in plain[:count]]
    returned = island.run([*copies, *plain[count:]])
    values = [*copies, *returned.outputs]
    references = [StorageWeakRef(value.untyped_storage()) if value.numel() else None for value in values]
    outputs = [output.clone() for output in returned.outputs]
    returned.outputs.clear()
    return returned, outputs, references


def _measured(
    island: Island, plain: Sequence[Tensor], first: Sequence[Tensor], device: torch.device
) -> tuple[Island, bool]:
    """The island with the memory that it takes, and whether it returned the same as in its first run."""
    usage, returned = device_of(device).used(lambda: island.run(plain))
    storages = {output.untyped_storage().data_ptr(): output.untyped_storage().nbytes() for output in returned.outputs}
    pairs = zip(returned.outputs, first, strict=True)
    is_same = all(one.shape == other.shape and torch.equal(one, other) for one, other in pairs)
    back_bytes = 0
    if run := _backward(island, plain, returned):
        back_bytes = device_of(device).used(run)[0].peak_bytes
    kept_bytes = max(usage.left_bytes - sum(storages.values()), 0)
    peaks = (usage.peak_bytes, back_bytes)
    return replace(island, kept_bytes=kept_bytes, peak_bytes=peaks, most_bytes=returned.kept.size_bytes), is_same


def _backward(
    island: Island, plain: Sequence[Tensor], returned: Returned
) -> Callable[[], tuple[Tensor | None, ...]] | None:
    """The backward pass of a run, for gradients that are made up; None where there is none."""
    if not island.wanted or not any(each.has_gradient for each in returned.shapes):
        return None
    values = [*plain[: island.argument_count], *returned.outputs]
    needed = [values[number] for number in sorted(island.reads or ())]
    pairs = zip(returned.outputs, returned.shapes, strict=True)
    gradients = [torch.ones_like(output) if each.has_gradient else None for output, each in pairs]
    places = [number for number in island.wanted if number < island.argument_count]
    begun = [*(torch.ones_like(plain[number]) for number in places), *([None] * (len(island.wanted) - len(places)))]
    return lambda: island.backward(returned.kept, needed, gradients, begun)


def _timed(
    island: Island, plain: Sequence[Tensor], device: torch.device
) -> tuple[list[Tensor], Tensor, tuple[float, float]]:
    """The outputs of a run, the random state after it, and the seconds of its two passes."""
    found: list[Returned] = []
    forward_s = device_of(device).timed_s(lambda: found.append(island.run(plain)))
    state, returned = random_state(device), found.pop()
    run = _backward(island, plain, returned)
    return returned.outputs, state, (forward_s, 0.0 if run is None else device_of(device).timed_s(run))


def _with_gradients(island: Island, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Outputs that say of themselves whether they have gradients."""
    found = list(outputs)
    numbers = [number for number, each in enumerate(island.outputs) if each.has_gradient]
    if numbers:
        token = torch.empty(0, requires_grad=True)
        for number, tensor in zip(numbers, Entered.apply(token, [found[k] for k in numbers]), strict=True):
            found[number] = tensor
    return tuple(found)
