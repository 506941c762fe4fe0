"""Plans in the Trainer of `transformers`, by one callback: `Trainer(..., callbacks=[PlannedCallback("0.6x")])`.

Needs the extra `trainers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import TrainerCallback

from gapless.errors import InputError
from gapless.torch.calls.model import OnNew, planned, plans_of, unplanned
from gapless.torch.library import Module

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

__all__ = ["PlannedCallback"]

_REFUSED = {
    "gradient_checkpointing": "recomputes of its own, and a plan says what is recomputed; leave it out",
    "neftune_noise_alpha": "hooks the embeddings, and a planned call runs no hook; leave it out",
    "torch_compile": "follows no plan of a call; leave it out, or the callback",
}
"""Arguments of training that don't go together with plans, and why."""


class PlannedCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Lets the model's calls follow plans from the beginning of training to its end, when the model is as before.

    `budget`, `on_new`, `cache`: as for `planned`. Evaluation runs without plans. Where training is broken off, the
    next `train()` goes on with the plans that are there.

    Raises `InputError` at the beginning of training for an argument of training that leaves a plan no room.
    """

    def __init__(self, budget: str | int, *, on_new: OnNew = "plan", cache: str | Path | None = None) -> None:
        self._budget, self._on_new, self._cache = budget, on_new, cache

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Module, **_: object
    ) -> None:
        """Plan the model."""
        for name, reason in _REFUSED.items():
            if getattr(args, name, None):
                raise InputError(f"PlannedCallback: {name} {reason}")
        if plans_of(model) is None:
            planned(model, self._budget, on_new=self._on_new, cache=self._cache)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Module, **_: object
    ) -> None:
        """Take the plans back, so that the model can be saved, copied and pickled as ever."""
        if plans_of(model) is not None:
            unplanned(model)
