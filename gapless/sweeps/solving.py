"""The work of one question, wherever it is done: solve, replay, write the plan, then the result."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from gapless.recipe import solve
from gapless.result import Result
from gapless.sweeps.question import Question
from gapless.sweeps.results import Row, joined, read_row, row_of, write_row
from gapless.system import find_system

__all__ = ["Work"]


@dataclass(frozen=True)
class Work:
    """Solve a question on so many threads and leave its files in a folder; picklable."""

    question: Question
    folder: Path
    threads: int

    def __call__(self, stop: threading.Event) -> Row:
        """Do it; once `stop` is set, with the best plan so far. A better plan that is there already is kept.

        While the solve goes on, its best plan is left there now and then, as if it had been interrupted.
        """
        question = self.question
        question.check_files()
        options, earlier = replace(question.options, threads=self.threads, stop=stop), read_row(self.folder, question)

        def keep(result: Result) -> None:
            self._leave(result, earlier)

        return self._leave(solve(question.problem, options, question.parameters, question.command, keep), earlier)

    def _leave(self, result: Result, earlier: Row | None) -> Row:
        """Leave the files of a result, or of an earlier one that is better."""
        question = self.question
        plan = f"{question.hash}.plan{find_system(question.system).ending}" if result.valid else None
        later = row_of(question, result, plan)
        row = later if earlier is None else joined(earlier, later)
        if plan is not None and (earlier is None or not earlier.is_better_than(later)):
            result.save(self.folder / plan)
        if not row.violations and (row.plan is not None or not row.is_interrupted):
            write_row(self.folder, question, row)
        return row
