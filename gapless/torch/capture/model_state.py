"""What of a model a captured step rests on, and the models that it would train otherwise than eager: they are refused.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gapless.errors import InputError
from gapless.torch.library import torch

__all__ = ["ModelState", "check_plain"]

_AVERAGE = "and average the gradients of all ranks after each step"
_WRAPPERS = {
    "DistributedDataParallel": f"whose all-reduce a planned step doesn't run; pass model.module, {_AVERAGE}",
    "DataParallel": "whose replicas a planned step doesn't make; pass model.module",
    "FullyShardedDataParallel": "whose parameters lie in shards; capture the model before it is sharded",
    "FSDPModule": "whose parameters lie in shards; capture the model before fully_shard",
    "OptimizedModule": "which runs code of its own; pass the model that torch.compile was given, model._orig_mod",
}
"""What PyTorch wraps models in, why a plan can't run it, and what to pass instead."""

_HOOKS = {
    "_forward_hooks": "forward hook", "_forward_pre_hooks": "forward pre-hook", "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}  # fmt: skip
_REPARAMETRISES = "torch.nn.utils."
"""Where the hooks come from that are traced whole: they compute a weight and keep nothing of what they see."""


@dataclass(frozen=True)
class ModelState:
    """What a capture takes for granted beside shapes: it is traced into the graph.

    `modes`: whether each module trains. `trainable`: the parameters that get gradients. `shared`: the names of each
    tensor that has several.
    """

    modes: dict[str, bool]
    trainable: frozenset[str]
    shared: frozenset[frozenset[str]]

    @classmethod
    def of(cls, model: Any) -> ModelState:
        """The state that a model is in."""
        parameters = dict(model.named_parameters(remove_duplicate=False))
        names: dict[int, set[str]] = {}
        for name, tensor in (*parameters.items(), *model.named_buffers(remove_duplicate=False)):
            names.setdefault(id(tensor), set()).add(name)
        return cls(
            {name: bool(module.training) for name, module in model.named_modules()},
            frozenset(name for name, parameter in parameters.items() if parameter.requires_grad),
            frozenset(frozenset(same) for same in names.values() if len(same) > 1),
        )

    def check(self, model: Any) -> None:
        """Raise `InputError` where a model is in another state, or has hooks that a planned step doesn't run."""
        refuse_hooks(model)
        now = ModelState.of(model)
        if now.modes != self.modes:
            name = min(name for name in {*now.modes, *self.modes} if now.modes.get(name) != self.modes.get(name))
            mode = "training" if self.modes.get(name) else "evaluation"
            rule = f"step: {_titled(name)} was captured in {mode} mode"
            raise InputError(f"{rule}; set it back with .train() or .eval(), or capture again in this mode")
        if name := min(now.trainable ^ self.trainable, default=""):
            was = "trained" if name in self.trainable else "frozen"
            raise InputError(f"step: parameter {name!r} was {was} at capture; set requires_grad back, or capture again")
        if differ := now.shared ^ self.shared:
            names = ", ".join(sorted(min(differ, key=sorted)))
            raise InputError(f"step: {names} must share a tensor, or not, as at capture; capture again")


def check_plain(model: Any) -> None:
    """Raise `InputError` for a wrapped, sharded or compiled model, and for hooks that a planned step doesn't run."""
    for name, module in model.named_modules():
        title = _titled(name)
        for kind in type(module).__mro__:
            if kind.__module__.startswith("torch.") and kind.__name__ in _WRAPPERS:
                raise InputError(f"{title} is a {kind.__name__}, {_WRAPPERS[kind.__name__]}")
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise InputError(f"{title} was compiled in place, and can't be traced; capture it without .compile()")
    for name, parameter in model.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            raise InputError(f"parameter {name!r} has no shape yet; run the model once before it is captured")
        if type(parameter.data) is not torch.Tensor:
            got = type(parameter.data).__name__
            raise InputError(f"parameter {name!r} must be a plain tensor, got a {got}; capture before it is sharded")
    refuse_hooks(model)


def refuse_hooks(model: Any) -> None:
    """Raise `InputError` for a hook on a module or parameter, or on all modules, which a planned step doesn't run."""
    found = next(_hooks(model), None)
    if found is not None:
        rule = "which a planned step doesn't run; remove it, and do its work on outputs or .grad after the step"
        raise InputError(f"{found}, {rule}")


def _hooks(model: Any) -> Iterator[str]:
    everywhere = vars(torch.nn.modules.module)
    for attribute, kind in _HOOKS.items():
        if everywhere.get(f"_global{attribute}"):
            yield f"all modules have a {kind}"
    for name, module in model.named_modules():
        for attribute, kind in _HOOKS.items():
            hooks = getattr(module, attribute)
            if any(not _is_traced(hook) for hook in hooks.values()):
                yield f"{_titled(name)} has a {kind}"
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:  # noqa: SLF001
            yield f"parameter {name!r} has a hook on its gradient"


def _is_traced(hook: Any) -> bool:
    """Whether a hook of a module is one that tracing keeps; any other may look at real data, of which it sees none."""
    return str(type(hook).__module__).startswith(_REPARAMETRISES)


def _titled(name: str) -> str:
    return f"module {name!r}" if name else "the model"
