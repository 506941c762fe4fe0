"""What runs of plans in language models begin with: the plan, its map, the model; and how equal logits must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gapless.encodings.chai.head_map import HeadMap, map_of
from gapless.errors import InputError
from gapless.io.record import Record
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.system import Answer, Session

if TYPE_CHECKING:
    from gapless.torch.heads.models import LanguageModel
    from gapless.torch.library import Tensor

__all__ = ["Opened", "opened", "tolerance_of"]

_TOLERANCES = {"float32": 1e-6, "bfloat16": 2**-4, "float16": 2**-7}
"""Of logits, of the largest of them: eight units in the last place, but a millionth in single precision."""


def tolerance_of(dtype: str, largest: float) -> float:
    """By how much logits may differ where the largest of them is so large."""
    return _TOLERANCES[dtype] * max(1.0, largest)


class _Question(Protocol):
    """What all of them ask."""

    @property
    def model(self) -> str: ...
    @property
    def plan(self) -> str: ...
    @property
    def device(self) -> str: ...


@dataclass(frozen=True)
class Opened:
    """A plan's map, and the model that it is of."""

    chosen: HeadMap
    model: LanguageModel

    @property
    def used(self) -> list[int]:
        """How many different heads each layer uses the attention of."""
        return [len(set(row)) for row in self.chosen.representative.tolist()]

    @property
    def has_fewer_queries(self) -> bool:
        """Whether a layer uses fewer heads than those whose keys it keeps."""
        group = self.model.layers[0].heads // self.model.layers[0].key_heads
        return any(used < group * len(kept) for used, kept in zip(self.used, self.chosen.kept, strict=True))

    def sequences(self, path: str, length: int, most: int, field: str = "text") -> Tensor:
        """Of a text file, at most so many, int64, (sequences, length). Raises `InputError`."""
        from gapless.torch.heads.models import sequences_of

        return sequences_of(self.model.tokens(path), length, most, f"{field}: {path}")


def opened(question: _Question, session: Session, dtype: str, run: Callable[[Opened], Answer]) -> Answer:
    """What `run` makes of a question's plan and model; that it isn't run, where the plan doesn't replay clean.

    Raises `InputError` where the model has another shape than the plan.
    """
    plan, report = plan_to_run(question.plan, "chai")
    if not report.valid:
        return not_run(report)
    chosen = map_of(plan, question.plan)
    from gapless.torch.heads.models import load_language_model

    model = load_language_model(question.model, session.options.seed, question.device, dtype)
    _check_model(model, Record(dict(plan.problem), f"{question.plan}: problem"), question.model)
    return run(Opened(chosen, model))


def _check_model(model: LanguageModel, asked: Record, name: str) -> None:
    first = model.layers[0]
    here = {"layers": len(model.layers), "heads": first.heads, "key_heads": first.key_heads}
    for title, count in here.items():
        if asked.integer(title, 1) != count:
            raise InputError(f"model: {name} has {count} {title}, the plan {asked.integer(title, 1)}; measure it again")
