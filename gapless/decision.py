"""Decisions: what a plan decides, as typed data beside its schedule.

Each system has a class of its own, whose fields are plain: numbers, texts, tuples of them, other such classes. Views,
exports and runs read it; `details` of a plan are for people. Plan files keep it in the section `decision`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.io.typed import data_of, read_record

if TYPE_CHECKING:
    from typing_extensions import Self

    from gapless.io.plan import SavedPlan

__all__ = ["Decision"]


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a plan decides. `VERSION`: of its form in files; one more where a field changes its meaning."""

    VERSION: ClassVar[int] = 1

    @property
    def data(self) -> dict[str, object]:
        """In plain values, as plan files have it."""
        return {"version": self.VERSION, **data_of(self)}

    @classmethod
    def of(cls, plan: SavedPlan, where: str = "plan") -> Self:
        """What a saved plan decides. Plans from before there were decisions have the same fields among their details.

        Raises `InputError` naming the field that isn't there, isn't what it must be, or contradicts another.
        """
        if not plan.decision:
            names = [field.name for field in dataclasses.fields(cls)]
            kept = {name: plan.details[name] for name in names if name in plan.details}
            return read_record(cls, Record(kept, f"{where}: details"))
        record = Record(dict(plan.decision), f"{where}: decision")
        version = record.integer("version", 1)
        if version != cls.VERSION:
            rule = f"must be {cls.VERSION}, got {version}"
            raise InputError(f"{where}: decision: version: {rule}; this gapless reads no other")
        return read_record(cls, record)
