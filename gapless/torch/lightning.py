"""Plans in Lightning's Trainer, by one callback: `Trainer(..., callbacks=[PlannedCallback("0.6x")])`.

Needs the package `lightning`, or `pytorch-lightning`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gapless.errors import InputError
from gapless.torch.calls.model import OnNew, Planned, planned, plans_of, unplanned
from gapless.torch.library import Module

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

__all__ = ["PlannedCallback"]

_PACKAGES = ("lightning", "pytorch_lightning", "torch")


class PlannedCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Lets calls of a LightningModule, or of a module in it, follow plans while it is fitted; then it is as before.

    `module`: whose calls are planned, as "model" for what `training_step` calls as `self.model(...)`. By default it is
    the LightningModule itself where that has a forward, else the only module in it that has parameters. `budget`,
    `on_new`, `cache`: as for `planned`. Validation runs without plans.

    Raises `InputError` where no module is named and there are several, and after a first batch without a planned call.
    """

    def __init__(
        self, budget: str | int, *, module: str = "", on_new: OnNew = "plan", cache: str | Path | None = None
    ) -> None:
        self._budget, self._module, self._on_new, self._cache = budget, module, on_new, cache

    def on_fit_start(self, trainer: object, pl_module: Module) -> None:
        """Plan the module."""
        module = self._of(pl_module)
        if plans_of(module) is None:
            planned(module, self._budget, on_new=self._on_new, cache=self._cache)

    def on_train_batch_end(
        self, trainer: object, pl_module: Module, outputs: Mapping[str, object] | None, batch: object, batch_idx: int
    ) -> None:
        """Look that a call has come."""
        plans = plans_of(self._of(pl_module))
        if self._on_new == "plan" and isinstance(plans, Planned) and not plans.plans:
            title = self._module or type(pl_module).__name__
            names = ", ".join(repr(name) for name in _children(pl_module))
            rule = f"PlannedCallback: training_step has not called {title}, so that nothing followed a plan"
            raise InputError(f"{rule}; name what it calls: module= one of {names}")

    def on_fit_end(self, trainer: object, pl_module: Module) -> None:
        """Take the plans back, so that the module can be saved, copied and pickled as ever."""
        if plans_of(self._of(pl_module)) is not None:
            unplanned(self._of(pl_module))

    def on_exception(self, trainer: object, pl_module: Module, exception: BaseException) -> None:
        """Take the plans back where fitting is broken off."""
        self.on_fit_end(trainer, pl_module)

    def _of(self, pl_module: Module) -> Module:
        children = _children(pl_module)
        if self._module:
            named = dict(pl_module.named_modules())
            if self._module not in named:
                raise InputError(f"module: must be one of {', '.join(children)}, or within one, got {self._module!r}")
            return named[self._module]
        owner = next(kind for kind in type(pl_module).__mro__ if "forward" in vars(kind))
        if owner.__module__.partition(".")[0] not in _PACKAGES:
            return pl_module
        if len(children) != 1:
            rule = f"PlannedCallback: {type(pl_module).__name__} has no forward of its own"
            raise InputError(f"{rule}; name the module whose calls are planned: module= one of {', '.join(children)}")
        return next(iter(children.values()))


def _children(pl_module: Module) -> dict[str, Module]:
    """The modules in a LightningModule that have parameters, by name."""
    return {name: child for name, child in pl_module.named_children() if next(child.parameters(), None) is not None}
