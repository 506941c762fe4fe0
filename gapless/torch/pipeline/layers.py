"""Models as layers in order, by the names that users give them; a step of one in one process, without a pipeline."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from gapless.errors import InputError
from gapless.torch.library import Module, Tensor, torch
from gapless.torch.run.workload import load_named

__all__ = ["Gradients", "LayeredModel", "load_layers", "one_process", "one_thread", "squared_error"]

Gradients = Mapping[str, Tensor | None]
"""Of parameters, by name; None for those that have none."""

_OWN = "train:gpt"
"""Our own that has layers, unless there is a module `train`."""


@dataclass(frozen=True)
class LayeredModel:
    """Layers of which each takes what the one before it makes, a tensor with the batch as its first dimension.

    `name`: as it was asked for. `inputs`, `targets`: of all micro-batches of a step; `loss(outputs, targets)`: the mean
    over a micro-batch. `shared`: names of the weights that the first and the last layer share, those that they have in
    both.
    """

    name: str
    layers: tuple[tuple[str, Module], ...]
    inputs: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]
    targets: Tensor
    shared: tuple[tuple[str, str], ...] = ()

    def untied(self) -> LayeredModel:
        """The same, with a copy of its own for the last layer of what it shares: ranks add up both gradients."""
        if not self.shared:
            return self
        name, last = self.layers[-1]
        return replace(self, layers=(*self.layers[:-1], (name, copy.deepcopy(last))))

    def stage(self, first: int, last: int) -> Module:
        """The layers `first` .. `last` - 1 as one module, with the names that they have here."""
        module = torch.nn.Sequential()
        for name, layer in self.layers[first:last]:
            module.add_module(name, layer)
        return module

    def stages(self, cut: tuple[int, ...]) -> list[Module]:
        """All layers; `cut`: the first layer of each stage but the first."""
        return [self.stage(first, last) for first, last in pairwise((0, *cut, len(self.layers)))]

    def boundaries(self, cut: tuple[int, ...], micro_batches: int) -> list[Tensor]:
        """What each stage but the last sends on of the first micro-batch."""
        (value, _), *_ = self.split(micro_batches)
        found = list[Tensor]()
        with torch.no_grad():
            for stage in self.stages(cut)[:-1]:
                found.append(stage(found[-1] if found else value))
        return found

    def boundary_bytes(self, cut: tuple[int, ...], micro_batches: int) -> tuple[int, ...]:
        """Of what each stage but the last sends on of a micro-batch."""
        return tuple(int(value.nbytes) for value in self.boundaries(cut, micro_batches))

    def split(self, micro_batches: int) -> list[tuple[Tensor, Tensor]]:
        """Inputs and targets of each micro-batch. Raises `InputError` where the batch doesn't divide into them."""
        if len(self.inputs) % micro_batches:
            rule = f"the batch of {len(self.inputs)} must divide into {micro_batches} micro-batches"
            raise InputError(f"model: {rule}; let the factory make another batch")
        return list(zip(self.inputs.chunk(micro_batches), self.targets.chunk(micro_batches), strict=True))


def load_layers(
    text: str, micro_batches: int = 1, seed: int = 0, defaults: Mapping[str, int] | None = None
) -> LayeredModel:
    """The model that a factory makes, named MODULE:FACTORY or FILE.py:FACTORY, with options: `train:gpt,layers=4`.

    The factory returns (model, inputs, loss, targets), the model a `torch.nn.Sequential` of its layers. `train:gpt` is
    our own small GPT unless there is a module `train`; `defaults`: its options where the text doesn't say them. The
    random numbers of the factory are those of the seed. Raises `InputError`.
    """
    place, _, _ = text.partition(",")
    work = load_named(text, seed, {**(defaults or {}), "micro_batches": micro_batches} if place == _OWN else None)
    if not isinstance(work.model, torch.nn.Sequential):
        rule = "must be a torch.nn.Sequential of its layers: embedding, blocks, head"
        raise InputError(f"model: {place} {rule}, got {type(work.model).__name__}")
    inputs, targets = work.inputs, work.targets
    if work.loss is None or isinstance(inputs, Mapping) or len(inputs) != 1 or len(targets) != 1:
        raise InputError(f"model: {place} must return (model, inputs, loss, targets), inputs and targets a tensor each")
    layers = tuple(work.model.named_children())
    return LayeredModel(text, layers, inputs[0], work.loss, targets[0], _shared(layers))


def _shared(layers: tuple[tuple[str, Module], ...]) -> tuple[tuple[str, str], ...]:
    """The names of what the first and the last layer share, in both. Raises `InputError` where other layers share."""
    owner: dict[int, tuple[str, str]] = {}
    pairs = []
    for layer, module in layers:
        for name, parameter in module.named_parameters():
            first, other = owner.setdefault(id(parameter), (layer, f"{layer}.{name}"))
            if first == layer:
                continue
            if (first, layer) != (layers[0][0], layers[-1][0]):
                rule = "only the first and the last layer may"
                raise InputError(f"model: layers {first} and {layer} share weights, {rule}; give each its own")
            pairs.append((other, f"{layer}.{name}"))
    return tuple(pairs)


def one_process(model: LayeredModel, micro_batches: int) -> tuple[Gradients, list[float]]:
    """Gradients by name and the loss of each micro-batch, one after the other on one thread; means over the batch."""
    whole, losses = model.stage(0, len(model.layers)), []
    with one_thread():
        whole.zero_grad(set_to_none=True)
        for inputs, targets in model.split(micro_batches):
            loss = model.loss(whole(inputs), targets)
            loss.backward()
            losses.append(float(loss.detach()))
    gradients = {name: parameter.grad for name, parameter in whole.named_parameters()}
    for gradient in gradients.values():
        if gradient is not None:
            gradient.div_(micro_batches)
    return gradients, losses


@contextmanager
def one_thread() -> Iterator[None]:
    """As the ranks have it: with more, sums come in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def squared_error(found: Gradients, expected: Gradients) -> float:
    """The squared distance of gradients from those expected, relative to their squared norm."""
    apart = norm = 0.0
    for name, gradient in expected.items():
        if gradient is not None:
            other, gradient = found[name], gradient.double()
            assert other is not None, "a parameter that has a gradient has one everywhere"
            apart += float((other.double() - gradient).square().sum())
            norm += float(gradient.square().sum())
    return apart / norm if norm else apart
