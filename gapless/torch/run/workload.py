"""Workloads: a model with the arguments of a training step, as users name them."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gapless.errors import InputError
from gapless.question.fields import Whole
from gapless.torch.library import Loss, Module, Tensor, torch

__all__ = ["Workload", "load_named", "load_workload"]

_OWN = {
    "train:gpt": "gapless.torch.pipeline.gpt:gpt", "train:net": "gapless.torch.ddp.net:net",
    **{f"train:{name}": f"gapless.torch.run.tasks:{name}" for name in ("vgg", "lstm", "bert")},
}  # fmt: skip
"""Our own small models, unless there is a module `train`."""


@dataclass(frozen=True)
class Workload:
    """A model with the arguments of a step, as `capture` takes them."""

    model: Module
    inputs: Sequence[Tensor] | Mapping[str, Tensor]
    loss: Loss | None = None
    targets: Sequence[Tensor] = ()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(iter(self.model.parameters())).device

    def loss_of(self, model: Module) -> torch.Tensor:
        """The loss of a forward pass of the model, or of what stands for it. Raises `InputError` where that is none."""
        output = self.output_of(model)
        loss = output if self.loss is None else self.loss(output, *self.targets)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            got = f"a tensor of {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            way_out = "let the factory return (model, inputs, loss, targets)"
            raise InputError(f"model: the loss must be a tensor of one number, got {got}; {way_out}")
        return loss

    def output_of(self, model: Module) -> torch.Tensor:
        """What a forward pass gives, the loss where the model returns it."""
        return model(**self.inputs) if isinstance(self.inputs, Mapping) else model(*self.inputs)

    def accuracy_of(self, model: Module) -> float | None:
        """The share of the targets that have the greatest score; None where outputs aren't scores of one target."""
        output = None if self.loss is None or len(self.targets) != 1 else self.output_of(model)
        if output is None or output.shape[:-1] != self.targets[0].shape or self.targets[0].is_floating_point():
            return None
        return float((output.argmax(-1) == self.targets[0]).double().mean())

    def train(self, step: Callable[..., torch.Tensor]) -> torch.Tensor:
        """The loss of a planned step, as `run` makes it."""
        if isinstance(self.inputs, Mapping):
            return step(*self.targets, **self.inputs)
        return step(*self.inputs, *self.targets)


def load_named(text: str, seed: int = 0, own_defaults: Mapping[str, int] | None = None) -> Workload:
    """What a factory makes under the random numbers of a seed: MODULE:FACTORY or FILE.py:FACTORY, and its options, as
    in `train:gpt,layers=4`.

    `train:gpt`, `train:net`, `train:vgg`, `train:lstm` and `train:bert` are our own small models unless there is a
    module `train`; `own_defaults`: options of those where the text doesn't say them. Raises `InputError`.
    """
    place, *given = text.split(",")
    options = _options(given)
    if place in _OWN and not _has_train():
        place, options = _OWN[place], {**(own_defaults or {}), **options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return load_workload(place, **options)


def _options(given: list[str]) -> dict[str, int]:
    options: dict[str, int] = {}
    for option in given:
        name, equals, value = option.partition("=")
        if not equals:
            raise InputError(f"model: options must be as in train:gpt,layers=4,hidden=64, got {option!r}")
        try:
            options[name] = Whole(1)(value)
        except InputError as error:
            raise InputError(f"model: {name}: {error}") from None
    return options


def _has_train() -> bool:
    """Whether a module of this name can be imported, as `python -m` finds it."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.util.find_spec("train") is not None


def load_workload(name: str, **options: int) -> Workload:
    """What a factory makes, named MODULE:FACTORY or FILE.py:FACTORY, of these options.

    It returns (model, inputs), where the model returns its loss, or (model, inputs, loss, targets). Raises `InputError`
    for what is no factory, or takes no such options.
    """
    factory = _factory(name)
    for option in options:
        if option not in inspect.signature(factory).parameters:
            known = ", ".join(inspect.signature(factory).parameters) or "none"
            raise InputError(f"model: {name} has no option {option!r}; it has {known}")
    made = factory(**options)
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise InputError(f"model: {name} must return (model, inputs) or (model, inputs, loss, targets)")
    model, inputs, loss, targets = (*made, None, ())[:4] if len(made) != 3 else (*made, ())
    inputs = inputs if isinstance(inputs, Mapping | tuple | list) else (inputs,)
    targets = targets if isinstance(targets, tuple | list) else (targets,)
    return Workload(model, inputs, loss, targets)


def _factory(name: str) -> Callable[..., tuple[Any, ...]]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise InputError(f"model: must be MODULE:FACTORY or FILE.py:FACTORY, got {name!r}")
    try:
        module = _file(Path(place)) if place.endswith(".py") else _module(place)
    except (ImportError, OSError) as error:
        raise InputError(f"model: {name} can't be imported: {error}") from None
    factory: Callable[..., tuple[Any, ...]] | None = getattr(module, attribute, None)
    if not callable(factory):
        raise InputError(f"model: {place} has no function {attribute!r}")
    return factory


def _module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    return importlib.import_module(name)


def _file(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None or not os.path.exists(path):
        raise ImportError(f"no such file: {path}")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
