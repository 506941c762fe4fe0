"""Whether a model is still as it was a step ago, in microseconds: what differs is for `ModelState.check` to say.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import Any

from gapless.torch.capture.attributes import plain_attributes
from gapless.torch.capture.model_state import HOOKS, titled_modules
from gapless.torch.library import torch

__all__ = ["ModelWatch"]

_TABLES = ("_parameters", "_buffers")
_WATCHED = ("training", "_modules", *HOOKS)
"""What every module has, and is compared with what it was."""


class ModelWatch:
    """Remembers a model, and a loss that is a module; `advanced`: as in `ModelState`, what may change."""

    def __init__(self, model: Any, loss: Any, advanced: Collection[tuple[str, str]]) -> None:
        everywhere = vars(torch.nn.modules.module)
        self._everywhere = [everywhere[f"_global{name}"] for name in HOOKS]
        self._rows, self._tensors = [], []
        for title, module in titled_modules(model, loss):
            values = vars(module)
            plain = {name: value for name, value in plain_attributes(module).items() if (title, name) not in advanced}
            seen = (values["training"], *(dict(values[name]) for name in _WATCHED[1:]), *plain.values())
            sizes = tuple(len(values[name]) for name in _TABLES)
            self._rows.append((values, type(module), module, itemgetter(*_WATCHED, *plain), seen, len(values), sizes))
            self._tensors += [(values[name], key, tensor) for name in _TABLES for key, tensor in values[name].items()]
        self._trained = [(each, each.requires_grad) for each in model.parameters()]

    def is_unchanged(self) -> bool:
        """Whether modules, their plain attributes, tensors and hooks are as they were."""
        if any(self._everywhere):
            return False
        try:
            for values, kind, module, read, seen, count, (parameters, buffers) in self._rows:
                if (
                    read(values) != seen
                    or type(module) is not kind
                    or len(values) != count
                    or len(values["_parameters"]) != parameters
                    or len(values["_buffers"]) != buffers
                ):
                    return False
            if any(table[name] is not tensor for table, name, tensor in self._tensors):
                return False
        except Exception:  # what is there no more, or tensors and arrays, which don't compare as wholes
            return False
        return all(
            each.requires_grad is was and not each._backward_hooks and not each._post_accumulate_grad_hooks  # noqa: SLF001
            for each, was in self._trained
        )
