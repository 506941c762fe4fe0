"""Measured configurations: of the settings of any program, the best under limits, with the uncertainty of the answer.

The path: `measure_file` reads which command to run with which settings, and what of its JSON to keep; `question` reads
what is wanted; `race` says in rounds which configuration is measured how often, and drops those that an interval rules
out; `commands` runs one, `log` keeps each measurement; `verdict` chooses; `table` writes the table; `choose` strings
these together.
"""

from __future__ import annotations

from gapless.sweeps.measured.answer import Answer
from gapless.sweeps.measured.choose import choose
from gapless.sweeps.measured.measure_file import MeasureFile, read_measure_file
from gapless.sweeps.measured.question import Question, read_question

__all__ = ["Answer", "MeasureFile", "Question", "choose", "read_measure_file", "read_question"]
