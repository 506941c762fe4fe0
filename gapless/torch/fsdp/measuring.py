"""What the layers of any module take, in a step of the whole: a profile for plans of sharded training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from gapless.array_types import Ints
from gapless.errors import InputError
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.torch.devices import Marks, device_of
from gapless.torch.fsdp.layers import layers_of, when_gradient_is_there
from gapless.torch.library import Module, Tensor, torch, tree_flatten
from gapless.torch.run.workload import Workload

__all__ = ["measure_step"]

_WARM_UP = 2


@dataclass
class _Seen:
    """One step. Marks: where it begins, where each layer of `forward` ends, where the loss is there, where the gradient
    of the output of each layer of `backward` is, and the end. `kept`: what autograd saves, by how many layers are over.
    """

    marks: Marks
    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    kept: dict[int, list[Tensor]] = field(default_factory=dict)
    output_bytes: dict[str, int] = field(default_factory=dict)

    def keep(self, tensor: Tensor) -> Tensor:
        """What the layer that runs leaves for its backward pass."""
        self.kept.setdefault(len(self.forward), []).append(tensor.detach())
        return tensor


def measure_step(
    name: str, work: Workload, patterns: Sequence[str] = (), repeats: int = 9, optimizer_ratio: float = 2.0,
    report: Callable[[str], None] = lambda line: None,
) -> PipelineProfile:  # fmt: skip
    """The profile of a model, layer by layer in the order of its forward pass; see `layers_of` for `patterns`.

    Times are medians of so many whole steps after two others. What runs between two layers counts to the later one in
    the forward pass, and the loss to the last layer. Raises `InputError` for a layer that doesn't run exactly once, and
    for gradients that reach layers in another order than the reverse.
    """
    layers = layers_of(work.model, patterns)
    with _watched(layers) as watch:
        first = watch(work, keeps=True)
        order = _order(first, layers)
        stash_bytes = _stashes(first, order, work.model)
        first.kept.clear()
        steps = []
        for number in range(_WARM_UP + repeats):
            report(f"step {number + 1} of {_WARM_UP + repeats} ...")
            steps.append(_times(watch(work), order))
    forward_s, backward_s = np.median(steps[_WARM_UP:], axis=0)
    sizes = [sum(parameter.nbytes for parameter in layers[layer].parameters()) for layer in order]
    parameters = np.array(sizes, dtype=np.int64)
    how = f"torch {torch.__version__}, whole steps, medians of {repeats}"
    return PipelineProfile(
        name=name,
        layer_names=tuple(order),
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=np.zeros(len(order)),
        parameter_bytes=parameters,
        state_bytes=np.rint(parameters * (2 + optimizer_ratio)).astype(np.int64),
        stash_bytes=stash_bytes,
        boundary_bytes=np.array([*(first.output_bytes[layer] for layer in order[:-1]), 0], dtype=np.int64),
        source=f"measured on {device_of(work.device).name}, {how}",
        whole_backward_s=backward_s,
    )


@contextmanager
def _watched(layers: Mapping[str, Module]) -> Iterator[Callable[..., _Seen]]:
    """A function of a workload that runs a step, says what it saw, and may keep what autograd saves; hooks are on the
    layers as long as this lasts.
    """
    seen: list[_Seen] = []

    def note_forward(name: str, output: object) -> None:
        step = seen[-1]
        step.forward.append(name)
        step.marks.mark()
        step.output_bytes[name] = sum(each.nbytes for each in tree_flatten(output)[0] if isinstance(each, torch.Tensor))
        when_gradient_is_there(output, lambda: note_backward(name))

    def note_backward(name: str) -> None:
        seen[-1].backward.append(name)
        seen[-1].marks.mark()

    def run(work: Workload, keeps: bool = False) -> _Seen:
        step = _Seen(Marks(work.device))
        seen[:] = [step]
        step.marks.mark()
        with torch.autograd.graph.saved_tensors_hooks(step.keep, lambda kept: kept) if keeps else nullcontext():
            loss = work.loss_of(work.model)
        step.marks.mark()
        loss.backward()
        step.marks.mark()
        return step

    hooks = [
        layer.register_forward_hook(lambda module, given, output, name=name: note_forward(name, output))
        for name, layer in layers.items()
    ]
    try:
        yield run
    finally:
        for hook in hooks:
            hook.remove()


def _order(step: _Seen, layers: Mapping[str, Module]) -> list[str]:
    """Layers as they run. Raises `InputError` unless each runs once, and gradients come in reverse."""
    for name in layers:
        if (count := step.forward.count(name)) != 1:
            times = "is never called" if not count else f"is called {count} times"
            rule = "FSDP2 gathers a layer where it is called, which must be once a forward pass"
            raise InputError(f"model: layer {name} {times}; {rule}: name other modules in layers")
    back = [name for name in reversed(step.forward) if name in step.backward]
    for expected, got in zip(back, step.backward, strict=True):
        if expected != got:
            raise InputError(f"model: gradients reach {got} before {expected}; name a module that holds both in layers")
    return step.forward


def _times(step: _Seen, order: Sequence[str]) -> tuple[list[float], list[float]]:
    """Seconds of each layer's forward and backward."""
    at_s, count = step.marks.elapsed_s(), len(order)
    forward_s = [end_s - begin_s for begin_s, end_s in pairwise(at_s[: count + 1])]
    forward_s[-1] += at_s[count + 1] - at_s[count]  # the loss
    reached_s = dict(zip(step.backward, at_s[count + 2 : -1], strict=True))
    ends_s, backward_s = at_s[-1], list[float]()
    for name in order[:-1]:
        begins_s = reached_s.get(name, ends_s)  # nothing goes back to a layer that isn't trained
        backward_s.append(ends_s - begins_s)
        ends_s = begins_s
    return forward_s, [*backward_s, ends_s - at_s[count + 1]]


def _stashes(step: _Seen, order: Sequence[str], model: Module) -> Ints:
    """Bytes of the memory in which all lies that autograd saves, parameters aside, each place for the first layer."""
    places = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    sizes = []
    for number in range(len(order)):
        kept = [*step.kept.get(number, ()), *(step.kept.get(len(order), ()) if number == len(order) - 1 else ())]
        here = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in kept}
        sizes.append(sum(size for place, size in here.items() if place not in places))
        places |= set(here)
    return np.array(sizes, dtype=np.int64)
