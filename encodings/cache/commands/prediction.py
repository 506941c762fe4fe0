"""What a plan was predicted to spoil, beside what it does: on the profile's own text, and on another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gapless.report.text import table

__all__ = ["Prediction"]

_FAR = 1.5
"""How many times the predicted error is far from it: between texts of one kind it was less."""
_ASK = "--calibration, the profile's text, shows whether modes together do that or another text"
_TEXT = "another text does most of that: more sequences in the profile, of a text like this one, predict better"
_MODES = "modes together do most of that, which a sum of single ones doesn't know: compare plans of other --modes here"


@dataclass(frozen=True)
class Prediction:
    """Errors by `measure`, nats a token: as predicted, on the text, and on the profile's own (`own`), where it is
    given.
    """

    measure: str
    predicted: float
    measured: float
    own: float | None = None

    @property
    def advice(self) -> str:
        """What to do where the measured error is far from the predicted one; empty where it isn't."""
        apart = _apart(self.measured, self.predicted)
        if apart < math.log(_FAR):
            return ""
        if self.own is None:
            return _ASK
        return _TEXT if _apart(self.measured, self.own) >= _apart(self.own, self.predicted) else _MODES

    @property
    def text(self) -> str:
        """A table, and the advice."""
        errors = {"predicted": self.predicted, "on the profile's text": self.own, "on this text": self.measured}
        rows = [[self.measure, "nats a token", "of the predicted"]]
        for name, error in errors.items():
            if error is not None:
                share = f"{error / self.predicted:.2f}" if self.predicted > 0 else "-"
                rows.append([name, f"{error:.3g}", share])
        return "\n".join([table(rows), *([self.advice] if self.advice else [])])


def _apart(one: float, other: float) -> float:
    """By how much errors differ, as the logarithm of their quotient; not at all where one is no error."""
    return abs(math.log(one / other)) if one > 0 and other > 0 else 0.0
