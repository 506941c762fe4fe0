"""Report: what a replay found, and the rules that a schedule can break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from gapless.report.short_repr import card_html
from gapless.units import format_bytes, format_count, format_joules, format_seconds

__all__ = ["STORED_PER_RULE", "BusyTime", "Findings", "Report", "Rule", "Violation"]

STORED_PER_RULE = 100
"""Violations that a report keeps of each rule; it counts all."""


class Rule(str, Enum):
    """The rules of a replay; the value is the name that reports and files use."""

    INPUT_MISSING = "input-missing"
    """An event reads, frees or overwrites a copy that is not there: never written, freed or overwritten before."""
    INPUT_LATE = "input-late"
    """An event starts before a copy that it reads is available."""
    INPUT_STALE = "input-stale"
    """A copy lacks contributions that its reader must see, or a transfer replaces the only copy that holds some."""
    RESOURCE_OVERLAP = "resource-overlap"
    """Two events hold a link, an engine or a named resource at once."""
    DURATION_TOO_SHORT = "duration-too-short"
    """An event takes less time than graph and topology say."""
    MEMORY_EXCEEDED = "memory-exceeded"
    """The live bytes of a device pass its capacity."""
    DOUBLE_REDUCTION = "double-reduction"
    """A contribution enters the same value twice."""
    REQUIRED_MISSING = "required-missing"
    """A required copy is not there at the end, or lacks contributions."""
    NOT_FREE = "not-free"
    """A copy is written, freed or overwritten while another event still reads or writes it."""
    BUDGET_EXCEEDED = "budget-exceeded"
    """The implementations that run spend more than a budget of the graph allows."""
    DECISION_BROKEN = "decision-broken"
    """The choices that a plan says it decided aren't those of its events, or come to something else by the question."""
    SWITCH_OP_MALFORMED = "switch-op-malformed"
    """Transfers that should be one operation of a switch that adds up or multicasts are none; they are left out."""
    UNKNOWN_ID = "unknown-id"
    """An event names what graph and topology do not have, or its times make no sense; it is left out of the replay."""


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    `event`, `tensor`, `device` are -1 where none is meant; `start_s` and `end_s` are the event's times as given (where
    there is no event: the makespan, twice). `message` says what is wrong, with the numbers.
    """

    rule: Rule
    event: int
    tensor: int
    device: int
    start_s: float
    end_s: float
    message: str


@dataclass(frozen=True)
class BusyTime:
    """Seconds that each link, each engine and each named resource of the topology is held, by its number there."""

    links: tuple[float, ...] = ()
    engines: tuple[float, ...] = ()
    resources: tuple[float, ...] = ()


@dataclass(frozen=True, repr=False)
class Report:
    """The outcome of a replay, recomputed from graph and topology.

    `makespan_s`: the latest end. `energy_j`: what the events draw while they run, None where a power is unknown.
    `peak_bytes[d]`: the most bytes live at once on device d. `event_count` counts all events, also those left out as
    unknown. `spent[b]`: what is spent of the graph's budget b.
    `violation_counts` is complete; `violations`, by start time, holds at most `STORED_PER_RULE` of each rule.
    """

    makespan_s: float
    peak_bytes: tuple[int, ...]
    busy_s: BusyTime
    event_count: int
    violations: tuple[Violation, ...] = ()
    violation_counts: dict[Rule, int] = field(default_factory=dict)
    energy_j: float | None = None
    spent: tuple[float, ...] = ()

    def with_broken(self, rule: Rule, messages: Sequence[str]) -> Report:
        """The report with violations of a rule that no event breaks, one for each message."""
        if not messages:
            return self
        end_s = self.makespan_s
        more = [Violation(rule, -1, -1, -1, end_s, end_s, message) for message in messages[:STORED_PER_RULE]]
        counts = {**self.violation_counts, rule: self.violation_counts.get(rule, 0) + len(messages)}
        return replace(self, violations=(*self.violations, *more), violation_counts=counts)

    def __repr__(self) -> str:
        broken = ", ".join(f"{rule.value} {count}" for rule, count in self.violation_counts.items())
        found = f"NOT valid: {broken}" if broken else "valid"
        return f"<replay: {format_count(self.event_count)} events in {format_seconds(self.makespan_s)}, {found}>"

    def _repr_html_(self) -> str:
        rows = [("makespan", format_seconds(self.makespan_s)), ("peak", format_bytes(max(self.peak_bytes, default=0)))]
        if self.energy_j is not None:
            rows.append(("energy", format_joules(self.energy_j)))
        rows += [
            (f"{rule.value} ({count})", self._first(rule).message) for rule, count in self.violation_counts.items()
        ]
        verdict = "valid" if self.valid else f"NOT valid: {format_count(self.violation_count)} violations"
        return card_html(f"replay of {format_count(self.event_count)} events: {verdict}", rows, self.valid)

    def _first(self, rule: Rule) -> Violation:
        return next(violation for violation in self.violations if violation.rule is rule)

    @property
    def violation_count(self) -> int:
        """The number of violations, stored or not."""
        return sum(self.violation_counts.values())

    @property
    def valid(self) -> bool:
        """Whether the schedule replays clean."""
        return not self.violation_counts

    def summary(self, device_names: Sequence[str] = (), length: str = "") -> str:
        """A few lines for people: verdict, makespan, energy, memory, and the first violation of each rule.

        `device_names`: by device; those without one go by number. `length`: the makespan in words, where the schedule's
        time isn't in seconds.
        """
        verdict = "valid" if self.valid else f"{format_count(self.violation_count)} violations"
        energy = "" if self.energy_j is None else f"energy {format_joules(self.energy_j)}, "
        peak_bytes = max(self.peak_bytes)
        device = self.peak_bytes.index(peak_bytes)
        where = device_names[device] if device < len(device_names) else f"device {device}"
        length = length or f"makespan {format_seconds(self.makespan_s)}"
        lines = [
            f"{format_count(self.event_count)} events: {verdict}",
            f"{length}, {energy}peak memory {format_bytes(peak_bytes)} on {where}",
        ]
        for rule, count in self.violation_counts.items():
            lines.append(f"{rule.value} ({count}): {self._first(rule).message}")
        return "\n".join(lines)


@dataclass
class Findings:
    """The violations of a replay while it runs: counts all, words only the first of each rule."""

    violations: list[Violation] = field(default_factory=list)
    counts: dict[Rule, int] = field(default_factory=dict)

    def add(self, rule: Rule, count: int, describe: Callable[[int], Violation]) -> None:
        """`count` violations of one rule; `describe(k)` words the k-th and is called for the stored ones only."""
        if not count:
            return
        known = self.counts.get(rule, 0)
        self.violations += [describe(number) for number in range(min(count, max(0, STORED_PER_RULE - known)))]
        self.counts[rule] = known + count
