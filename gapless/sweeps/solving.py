"""The work of one instance, wherever it is done: solve, replay, write the plan, then the result."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from gapless.recipe import solve
from gapless.sweeps.instances import Instance
from gapless.sweeps.results import Row, read_row, row_of, write_row
from gapless.system import find_system

__all__ = ["Work"]


@dataclass(frozen=True)
class Work:
    """Solve an instance on so many threads and leave its files in a folder; picklable."""

    instance: Instance
    folder: Path
    threads: int

    def __call__(self, stop: threading.Event) -> Row:
        """Do it; once `stop` is set, with the best plan so far, which is kept unless an earlier one is better."""
        instance = self.instance
        instance.check_files()
        options = replace(instance.options, threads=self.threads, stop=stop)
        result = solve(instance.problem, options, instance.parameters, instance.command)
        plan = f"{instance.hash}.plan{find_system(instance.system).ending}" if result.valid else None
        row = row_of(instance, result, plan)
        if row.is_interrupted:
            earlier = read_row(self.folder, instance)
            if earlier is not None and not _is_better(row, earlier):
                return earlier
        if plan is not None:
            result.save(self.folder / plan)
        if not row.violations and (plan is not None or not row.is_interrupted):
            write_row(self.folder, instance, row, instance.command)
        return row


def _is_better(row: Row, than: Row) -> bool:
    """Whether a plan is there, and better than the other row's, if that has one."""
    if row.plan is None or than.plan is None:
        return row.plan is not None
    mine, other = ((each.objective_s if each.objective_j is None else each.objective_j) for each in (row, than))
    return other is None or (mine is not None and mine < other)
