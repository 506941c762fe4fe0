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
from typing import Any

from gapless.errors import InputError

__all__ = ["Workload", "load_workload"]


@dataclass(frozen=True)
class Workload:
    """A model with the arguments of a step, as `capture` takes them."""

    model: Any
    inputs: Sequence[Any] | Mapping[str, Any]
    loss: Callable[..., Any] | None = None
    targets: Sequence[Any] = ()

    @property
    def device(self) -> Any:
        """Where the model is."""
        return next(iter(self.model.parameters())).device

    def loss_of(self, model: Any) -> Any:
        """The loss of a forward pass of the model, or of what stands for it."""
        found = model(**self.inputs) if isinstance(self.inputs, Mapping) else model(*self.inputs)
        return found if self.loss is None else self.loss(found, *self.targets)

    def train(self, step: Callable[..., Any]) -> Any:
        """The loss of a planned step, as `run` makes it."""
        if isinstance(self.inputs, Mapping):
            return step(*self.targets, **self.inputs)
        return step(*self.inputs, *self.targets)


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


def _factory(name: str) -> Callable[[], Any]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise InputError(f"model: must be MODULE:FACTORY or FILE.py:FACTORY, got {name!r}")
    try:
        module = _file(Path(place)) if place.endswith(".py") else _module(place)
    except (ImportError, OSError) as error:
        raise InputError(f"model: {name} can't be imported: {error}") from None
    found = getattr(module, attribute, None)
    if not callable(found):
        raise InputError(f"model: {place} has no function {attribute!r}")
    factory: Callable[[], Any] = found
    return factory


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    return importlib.import_module(name)


def _file(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None or not path.exists():
        raise ImportError(f"no such file: {path}")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
