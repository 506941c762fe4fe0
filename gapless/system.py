"""System: one published system, as the rest of gapless sees it; and the registry, which finds them.

A folder `encodings/<name>` with a `system.py` is one; nothing else names it. Other packages add theirs by an entry
point of the group `gapless.systems` that names a `System`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol

from gapless.errors import InputError, must_be
from gapless.options import SolveOptions
from gapless.question import Asked, fields_of
from gapless.question.fields import Field, meant
from gapless.question.recorded import remember

if TYPE_CHECKING:  # a system is light until it is asked
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from gapless.checker import Report
    from gapless.decision import Decision
    from gapless.io.plan import SavedPlan
    from gapless.ir.schedule import Schedule
    from gapless.ir.windows import Windows
    from gapless.model import Model
    from gapless.solution import PlanClass, Solution
    from gapless.torch.ranks import Ranks

__all__ = [
    "ENTRY_POINTS",
    "Answer",
    "Audit",
    "Challenge",
    "Command",
    "Export",
    "Narrowing",
    "Plan",
    "Problem",
    "Session",
    "System",
    "find_system",
    "known_system",
    "register",
    "system_names",
]

ENTRY_POINTS = "gapless.systems"
"""The group of entry points by which other packages add systems."""


@dataclass(frozen=True)
class Plan:
    """What an encoding claims: a schedule (None if it found none), the solver's words on it, and details by name.

    `product`: what the schedule was made from, for an encoding that has files of its own. `decision`: what was decided,
    as typed data. `problem`: what the schedule solves, where the encoding had to choose that as well. `windows`: what
    replays a plan that may be too long for one schedule; its `schedule` then has no events.
    """

    solution: Solution
    schedule: Schedule | None
    details: Mapping[str, object] = field(default_factory=dict)
    product: object = None
    problem: Problem | None = None
    windows: Windows | None = None
    decision: Decision | None = None


class Problem(Protocol):
    """A scheduling problem; `gapless.encodings.<system>.Problem` are its kinds."""

    @property
    def system(self) -> str:
        """The name of its system."""

    @property
    def description(self) -> dict[str, object]:
        """What was asked, in plain values, for the plan file."""

    @property
    def default_options(self) -> SolveOptions:
        """The options for a caller who gives none."""


@dataclass(frozen=True)
class Export:
    """A format that plans of a system can be written in.

    `write(path, plan, values)` writes a plan that replays clean, and says in a line what was written; `fields` are its
    options. `beside`: the option of `solve` that writes it beside the plan, empty where there is none.
    """

    name: str
    what: str
    write: Callable[[str, SavedPlan, Mapping[str, Any]], str]
    fields: tuple[Field, ...] = ()
    beside: str = ""


@dataclass(frozen=True)
class Answer:
    """What a command found: plain values for programs, lines for people.

    `data`: what is printed as a JSON object. `text`: what people see. `notes`: what goes to stderr besides.
    `is_complete`: whether all that was asked for has an answer. `is_valid`: whether every plan replays clean.
    `is_infeasible`: whether it is proven that there is none.
    """

    data: Mapping[str, object]
    text: str
    notes: tuple[str, ...] = ()
    is_complete: bool = True
    is_valid: bool = True
    is_infeasible: bool = False


@dataclass(frozen=True)
class Session:
    """What a command is run with.

    `options`: how to solve. `say`: called with a line on what is being done. `command`: what was typed, for files.
    `parameters`: what was given for the searches' parameters, for `gapless.question.parameters.parameters_of`.
    `ranks`: those that a launcher has started, this process among them; None where there is no launcher.
    """

    options: SolveOptions
    say: Callable[[str], None]
    command: str = ""
    parameters: object = None
    ranks: Ranks | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files: rank 0, where there are several."""
        return self.ranks is None or self.ranks.launch.rank == 0


@dataclass(frozen=True)
class Command:
    """A question beside `solve` that a system answers, as a subcommand of `advise`, `sweep`, `run`, `profile` or
    `validate`, or as a command by itself.

    `answer(values, session)` finds the answer; `fields` are its options. `solving`: the options of solving that it
    takes, with their defaults; None where it solves nothing, and may have a time limit alone (`is_limited`).
    `when_stopped`: what is said when somebody stops it. `is_launched`: whether a launcher, such as torchrun, may have
    started it, once a rank; it has a field `wait` then, the longest that a rank waits for another.
    """

    name: str
    what: str
    fields: tuple[Field, ...]
    answer: Callable[[Mapping[str, object], Session], Answer]
    example: str = ""
    solving: SolveOptions | None = None
    when_stopped: str = "stopping with what is known"
    is_limited: bool = False
    is_launched: bool = False


@dataclass(frozen=True)
class Audit:
    """What a plan's decision comes to by its question, beside the replay. `broken`: where it isn't what the plan says,
    a line each. `notes`: what could not be looked at, and why.
    """

    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Narrowing:
    """A narrower class of plans that a question asks for. `without`: what asks for the class around it: the fields to
    leave out as None, others as they have to be said then.
    """

    plans: PlanClass
    without: Mapping[str, object]


@dataclass(frozen=True)
class Challenge:
    """Another way to ask what a plan claims to answer, by which a better plan may be found.

    `name`: in words, as people would ask. `plans`: the narrowest class that its answers belong to; None for that of the
    question as it was asked. `values`: fields of the question that are said otherwise, None for those left out.
    `options`: fields of `SolveOptions`. `parameters`: makes other parameters of the searches of the system's own ones.
    `restarted(problem, plan)`: the question with the plan as a start. `search(problem, plan, options, share)`: a
    schedule from the plan itself, None where nothing is found; no solve then. `weight`: of all work, beside the others.
    """

    name: str
    plans: PlanClass | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: Callable[[Any], Any] | None = None
    restarted: Callable[[Any, SavedPlan], Problem] | None = None
    search: Callable[[Any, SavedPlan, SolveOptions, float], Schedule | None] | None = None
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class System:
    """What the commands, the sweeps and the pages ask of a system.

    `what`: one line for the help. `question`: what is asked, the dataclass whose fields are the options. `problem`: the
    problem that a question states, where that is another object; in a sweep it is made once to see whether it is
    refused. `plan`: solves a problem under the
    options, with the system's parameters (None: its defaults). `parameters`: the class of those. `example` and
    `notes`: of the help.

    `summary`: the details that a summary has, by name. `remarks(details)`: lines that stand below it.
    `lighter`: what needs less memory. `ending`: that of
    its plan files; `write` and `read` are for a system with files of its own. `view(plan, report)`: what `show` prints
    below the replay, instead of the busiest links and engines. `device_names`: what its devices are called, empty where
    they go by number. `headline`: the parts of what stands at the head of pictures and pages, with the problem's fields
    in braces; one of which a field is missing or None is left out. `budgets`: the bytes that the question allows each
    device, inf for no limit and empty for none anywhere: limits that a plan sets itself, or a machine, are not the
    question's. `pictures`: the kinds that suit its plans, the most telling first; `drawers`: kinds of its own.
    `tables`: the formats of the `summary.json` that its own sweeps write, and what draws each: from the file and the
    column along the axis (None: the system's choice) a figure, and what it shows in words.
    `decision`: the class of what its plans decide. `model`: the model behind a problem, for those who write it to a
    file. `exports`, `listings` (tables of `list`, whose docstrings say what they list), `advice`, `sweeps`, `runs`,
    `profiles`, `validations`, `commands` (those that stand by their own name): what else it has. `package`: where its
    data lie, `schemas/*.json` of its files and `references.bib`. `trial`: a small question for the self test of
    `doctor`, with the options to solve it under.

    `narrowing(problem, said)`: by which of the fields that were said a question asks for a narrower class of plans than
    any plan, the widest first; `challenge` asks without them. `challenges(problem, plan)`: how else it may be asked.
    `pinned(problem)`: fields as the question has them by itself, so that another method is charged by the same measure.
    `cost(problem, plan, report)`: what a plan costs by the question, where that is no replay's word; None where the
    plan answers a part of the question only. `audit(plan)`: holds what a saved plan decides against its events, and
    against the files that its question names. `faster_library(plan, plan_s, backend)`: that the library behind a
    backend of torch.distributed is predicted to be faster than a plan as it was replayed, in a line; empty where it
    isn't.
    """

    name: str
    what: str
    question: type[Asked]
    plan: Callable[[Any, SolveOptions, Any], Plan]
    problem: Callable[[Any], Any] = lambda question: question
    parameters: Callable[[], type] | None = None
    example: str = ""
    notes: str = ""
    summary: tuple[str, ...] = ()
    remarks: Callable[[Mapping[str, object]], tuple[str, ...]] = lambda details: ()
    lighter: str = "a smaller question"
    ending: str = ".json"
    write: Callable[[str, SavedPlan], None] | None = None
    read: Callable[[str], SavedPlan] | None = None
    view: Callable[[SavedPlan, Report], str] | None = None
    device_names: Callable[[SavedPlan], tuple[str, ...]] | None = None
    headline: tuple[str, ...] = ()
    budgets: Callable[[SavedPlan], Sequence[float]] = lambda plan: ()
    pictures: tuple[str, ...] = ("gantt",)
    drawers: Mapping[str, Callable[[SavedPlan, Axes | None], Axes]] = field(default_factory=dict)
    tables: Mapping[str, Callable[[str, str | None], tuple[Figure | SubFigure, str]]] = field(default_factory=dict)
    model: Callable[[Any], Model] | None = None
    exports: tuple[Export, ...] = ()
    listings: Mapping[str, Callable[[], Sequence[Mapping[str, object]]]] = field(default_factory=dict)
    advice: tuple[Command, ...] = ()
    sweeps: tuple[Command, ...] = ()
    runs: tuple[Command, ...] = ()
    profiles: tuple[Command, ...] = ()
    validations: tuple[Command, ...] = ()
    commands: tuple[Command, ...] = ()
    decision: Callable[[], type[Decision]] | None = None
    package: str = ""
    plans_steps: bool = False
    trial: Callable[[], tuple[Any, SolveOptions]] | None = None
    narrowing: Callable[[Any, Mapping[str, object]], Sequence[Narrowing]] = lambda problem, said: ()
    challenges: Callable[[Any, SavedPlan], Sequence[Challenge]] = lambda problem, plan: ()
    pinned: Callable[[Any], Mapping[str, object]] = lambda problem: {}
    cost: Callable[[Any, SavedPlan, Report], float | None] | None = None
    audit: Callable[[SavedPlan], Audit] = lambda plan: Audit()
    faster_library: Callable[[SavedPlan, float, str], str] = lambda plan, plan_s, backend: ""

    def __repr__(self) -> str:
        return f"System({self.name!r})"

    def ask(self, values: Mapping[str, object]) -> Any:
        """The question that texts or objects of Python describe. Raises `InputError` that names the argument."""
        known = [field.name for field in self.fields]
        for name in values:
            if name not in known:
                raise InputError(f"{name}: is no argument of {self.name}; {meant(name, known)}")
        question = self.question(**values)
        return remember(self.problem(question), self.fields, vars(question))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the question, the first of which may stand without its name."""
        return fields_of(self.question)


_REGISTERED: dict[str, System] = {}
"""What this process has added by itself."""


def register(system: System) -> None:
    """Add a system for this process only, as a notebook does; a package names its own by an entry point.

    Raises `InputError` for something else, and where there is one of its name.
    """
    must_be("system", isinstance(system, System), "a System", system)
    if system.name in system_names():
        raise InputError(f"system: {system.name!r} is there already")
    _REGISTERED[system.name] = system


def system_names() -> tuple[str, ...]:
    """The systems that are there, sorted."""
    return tuple(sorted({*_shipped(), *_elsewhere(), *_REGISTERED}))


def find_system(name: str) -> System:
    """The system of this name. Raises `InputError` where there is none."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _shipped():
        found = import_module(f"gapless.encodings.{name}.system").SYSTEM
    elif name in _elsewhere():
        found = _elsewhere()[name].load()
    else:
        from gapless.io.record import suggestion

        rule = f"system: must be one of {', '.join(system_names())}, got {name!r}"
        raise InputError(f"{rule}; {hint}" if (hint := suggestion(name, system_names())) else rule)
    assert isinstance(found, System)
    return found


def known_system(name: str) -> System | None:
    """The system of this name; None where it is not there, as for the plan of a package that is not installed."""
    return find_system(name) if name in system_names() else None


@cache
def _shipped() -> tuple[str, ...]:
    """The folders below `encodings`."""
    path = import_module("gapless.encodings").__path__
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(path) if entry.ispkg))


@cache
def _elsewhere() -> dict[str, EntryPoint]:
    """The entry points of other packages, by name."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
