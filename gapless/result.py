"""Result: a solved problem, with what the solver claims and what the replay found; `load` reads one back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.checker import Report, Rule
from gapless.decision import Decision
from gapless.errors import InputError, must_be
from gapless.io.plan import SavedPlan, claim_data, excerpt_of, read_plan, replay_of, solution_of, write_plan
from gapless.ir.schedule import Schedule
from gapless.ir.windows import Windows
from gapless.options import SolveOptions
from gapless.question.fields import read_fields
from gapless.report.headline import claimed, is_timed, narrower_of, wider_of
from gapless.report.text import aligned, described, words
from gapless.solution import Solution, Status, refuted
from gapless.system import Problem, find_system, known_system, system_names
from gapless.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Asked", "Result", "audited", "load", "read_saved", "replay_data", "write_saved"]

_FIRST = (
    "status",
    "stop_reason",
    "makespan_s",
    "energy_j",
    "bound_s",
    "objective_span_s",
    "bound_span_s",
    "bound_j",
    "objective_error",
    "bound_error",
    "objective_cost",
    "bound_cost",
    "gap",
)
_LAST = ("peak_bytes", "solve_s", "stages", "solver")
"""What every summary has, before and after what the system adds."""
_SKETCHED_PARTS = 3
"""Of a plan that is too long for one schedule, which a notebook draws: more take long to look at."""


@dataclass(frozen=True)
class Asked:
    """The problem of a plan that was loaded, in the words of its file."""

    system: str
    description: dict[str, object]
    default_options: SolveOptions = field(default_factory=SolveOptions)


@dataclass(frozen=True, repr=False)
class Result:
    """A solved problem: what the solver claims (`solution`) and what the replay found (`report`).

    `timings`: seconds by stage. `product`: what the schedule was made from, for a system with files of its own. `run`:
    how it was solved, as plan files keep it. `windows`: what replays a plan that may be too long for one schedule; its
    `schedule` then has no events.
    """

    problem: Problem
    solution: Solution
    schedule: Schedule | None
    report: Report | None
    details: Mapping[str, object]
    timings: Mapping[str, float] = field(default_factory=dict)
    product: object = None
    run: Mapping[str, object] = field(default_factory=dict)
    windows: Windows | None = None
    decision: Decision | None = None

    def __repr__(self) -> str:
        gap = f", {self._proven}" if self.solution.bounds else ""
        found = "no plan"
        if self.report is not None:
            is_in_s = is_timed(claim_data(self.solution))
            makespan = f" in {described('makespan_s', self.report.makespan_s)}" if is_in_s else ""
            found = (
                f"{format_count(self.report.event_count)} events{makespan}, {'valid' if self.valid else 'NOT valid'}"
            )
        return f"<{self.problem.system}: {self.status.value}{gap}; {found}>"

    @property
    def _proven(self) -> str:
        """How far from optimal the plan is, among all plans of the question and among those of narrower classes."""
        gap, claim = self.solution.gap, claim_data(self.solution)
        narrower = [] if gap == 0 else [said for _, said in narrower_of(claim)]
        return "; ".join([*([] if gap is None else [f"gap {described('gap', gap)}"]), *narrower])

    def _repr_html_(self) -> str:
        """For notebooks: a small table, a small picture, and the summary behind a click."""
        from gapless.report.notebook import picture_html, result_card
        from gapless.report.short_repr import table_of

        system = self.problem.system
        picture = "" if self.schedule is None else picture_html(self._sketch, f"the plan of {system}")
        return result_card(system, self.data, self.report, table_of(self._rows()), picture)

    def _sketch(self) -> Axes:
        """The most telling picture; of a long plan, that of its first parts."""
        from gapless.plot.pictures import draw, pictures_of

        plan = self.plan
        if plan.windows is not None and not len(plan.schedule):
            plan = excerpt_of(plan, f"0:{min(_SKETCHED_PARTS, plan.windows.count)}")
        return draw(plan, pictures_of(plan)[0])

    @property
    def status(self) -> Status:
        """The status of the solution."""
        return self.solution.status

    @property
    def valid(self) -> bool:
        """Whether there is a schedule that replays clean."""
        return self.report is not None and self.report.valid

    @property
    def data(self) -> dict[str, object]:
        """All that is known but the schedule, in plain values: the JSON object of the command line."""
        return {
            "problem": self.problem.system,
            "asked": self.problem.description,
            **claim_data(self.solution),
            **plain_claim(self.solution),
            "solve_s": round(self.solution.wall_s, 6),
            **replay_data(self.report),
            **self.details,
            **({"stages": dict(self.timings)} if self.timings else {}),
        }

    @property
    def plan(self) -> SavedPlan:
        """The plan as files hold it. Raises `InputError` where there is none."""
        if self.schedule is None:
            raise InputError(f"{self.problem.system}: there is no plan: {self.status.value}")
        return SavedPlan(
            self.problem.system, self.problem.description, claim_data(self.solution), self.details, self.schedule,
            self.run, self.product, self.windows, {} if self.decision is None else self.decision.data,
        )  # fmt: skip

    def check(self) -> Report:
        """Replay the schedule once more. Raises `InputError` where there is none."""
        return replay_of(self.plan.schedule, self.windows)

    def challenge(self, **how: object) -> Any:
        """Try to refute what is claimed of the plan, as `gapless.challenge` does, which takes the same arguments."""
        return import_module("gapless.challenges").challenge(self, **how)  # it solves, and so makes results

    def summary(self, files: Mapping[str, str | None] | None = None) -> str:
        """What was asked, what was claimed and what the replay found, a line each.

        `files`: what was written, by the name of its line; None for what wasn't.
        """
        written = [(name, path) for name, path in (files or {}).items() if path is not None]
        return aligned([*self._rows(), *written])

    def _rows(self) -> list[tuple[str, str]]:
        asked = {name: value for name, value in self.problem.description.items() if not isinstance(value, list)}
        system, data = known_system(self.problem.system), self.data
        shown = (*(() if system is None else system.summary), *_LAST)
        first, found = ({name: data[name] for name in names if name in data} for names in (_FIRST, shown))
        if not is_timed(data):
            first.pop("makespan_s", None)
        rows = [(words(name), described(name, value)) for name, value in asked.items()]
        rows += [(words(name), claimed(name, value)) for name, value in first.items()]
        rows += [("narrower bound", f"{bound}: {said}") for bound, said in narrower_of(data)]
        rows += [("wider question", said)] if (said := wider_of(self.details)) else []
        return rows + [(words(name), described(name, value)) for name, value in found.items()]

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, whole or not at all; `load` reads it.

        Raises `InputError` where there is no plan, or the name doesn't end as this system's plans do.
        """
        write_saved(path, self.plan)

    def export(self, path: str | Path, form: str, **values: object) -> str:
        """Write the plan in the format of a runtime or a viewer, as `gapless export --format` names it.

        `values`: the format's own options, with underscores. Returns a line on what was written. Raises `InputError`
        where there is no plan, or none that replays clean, and for a format or an option that isn't there.
        """
        from gapless.io.formats.exports import export_format

        plan = self.plan
        export = export_format(plan, form)
        if not self.valid:
            raise InputError(f"{self.problem.system}: the plan doesn't replay clean, and isn't exported")
        written = export.write(str(path), excerpt_of(plan, None), read_fields(export.fields, values, form))
        return f"{path}: {written}"

    def events_frame(self) -> Any:
        """The events, a row each: a pandas DataFrame where pandas is installed, else a list of dictionaries."""
        from gapless.ir.schedule import event_records

        records = event_records(self.plan.schedule)
        if find_spec("pandas") is None:
            return records
        return import_module("pandas").DataFrame.from_records(records)

    def plot(self, kind: str = "auto", ax: Axes | None = None) -> Axes:
        """Draw the plan (needs the extra `plot`); returns the axes, which a notebook shows.

        `kind`: as `gapless plot --kind` takes it. `ax`: the axes to draw on, None for a figure of its own.
        """
        from gapless.plot.pictures import draw
        from gapless.report.headline import verdict_of
        from gapless.report.notebook import shown_in_notebooks

        must_be("kind", isinstance(kind, str), "a text", kind)
        must_be("ax", ax is None or hasattr(ax, "figure"), "axes of matplotlib or None", ax)
        plan = excerpt_of(self.plan, None)
        axes = draw(plan, kind, ax, verdict=verdict_of(plan, self.report))
        return axes if ax is not None else shown_in_notebooks(axes, f"{kind} of {plan.system}")


def plain_claim(solution: Solution) -> dict[str, object]:
    """Objective and bound by their own names, where the unit is the question's own."""
    return {"objective": solution.objective, "bound": solution.bound} if solution.unit == "cost" else {}


def replay_data(report: Report | None) -> dict[str, object]:
    """What the replay found, in plain values."""
    if report is None:
        return {"valid": False, "violations": None, "makespan_s": None, "peak_bytes": None}
    return {
        "valid": report.valid,
        "violations": {rule.value: count for rule, count in report.violation_counts.items()},
        "makespan_s": report.makespan_s,
        **({} if report.energy_j is None else {"energy_j": report.energy_j}),
        "peak_bytes": max(report.peak_bytes, default=0),
    }


def write_saved(path: str | Path, plan: SavedPlan) -> None:
    """Write a plan in the format of its system. Raises `InputError` for a name that doesn't end as those do."""
    must_be("path", isinstance(path, str | Path) and bool(Path(path).name), "the name of a file", path)
    system = known_system(plan.system)
    if system is None or system.write is None:
        write_plan(path, plan)
        return
    if not str(path).endswith(system.ending):
        raise InputError(f"{path}: a plan of {system.name} is a {system.ending} file")
    system.write(str(path), plan)


def read_saved(path: str | Path) -> SavedPlan:
    """The plan in a file, of whatever system. Raises `InputError` naming file and field."""
    must_be("path", isinstance(path, str | Path), "a text or a path", path)
    systems = [find_system(name) for name in system_names()]
    own = (each.read for each in systems if each.read is not None and str(path).endswith(each.ending))
    plan = next(own, read_plan)(str(path))
    decision_of(plan, str(path))  # every section of a file is looked at
    return plan


def decision_of(plan: SavedPlan, where: str) -> Decision | None:
    """What a plan decides, None where it doesn't say. Raises `InputError` for what its system couldn't have decided."""
    system = known_system(plan.system)
    if system is None or system.decision is None or not plan.decision:
        return None
    return system.decision().of(plan, where)


def audited(plan: SavedPlan) -> tuple[Report, tuple[str, ...]]:
    """What the replay finds in a saved plan and what its system finds in its decision, and what was not looked at."""
    report, system = replay_of(plan.schedule, plan.windows), known_system(plan.system)
    if system is None:
        return report, ()
    found = system.audit(plan)
    return report.with_broken(Rule.DECISION_BROKEN, found.broken), found.notes


def load(path: str | Path) -> Result:
    """A plan that was saved, replayed; one that breaks a rule is `invalid`, whatever its file claims.

    Raises `InputError` naming file and field.
    """
    plan = read_saved(path)
    try:
        solution = solution_of(plan.claim, plan.solve_s or 0.0)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    asked, timings = Asked(plan.system, dict(plan.problem)), plan.run.get("timings")
    timings = timings if isinstance(timings, Mapping) else {}
    report, _ = audited(plan)
    left = solution if report.valid else refuted(solution)
    return Result(
        asked, left, plan.schedule, report, plan.details, timings, plan.product, plan.run, plan.windows,
        decision_of(plan, str(path)),
    )  # fmt: skip
