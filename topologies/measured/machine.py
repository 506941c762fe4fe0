"""Measured machines: the profiler's run from the first transfer on, the cluster that it ends with, and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import numpy as np

from gapless.array_types import Floats
from gapless.topologies.measured.connections import measured_tables
from gapless.topologies.measured.experiments import Experiments, OutOfTimeError, Pair, Sample
from gapless.topologies.measured.regression import Line, fit_line
from gapless.topologies.measured.structure import Inside, Structure, classes_of, find_structure
from gapless.topologies.node import Cluster, LocalLink, NicTemplate, NodeTemplate, SwitchTemplate
from gapless.topologies.ports.congestion import Slowdown
from gapless.units import BYTES_PER_MB, S_PER_US

__all__ = [
    "BY",
    "Asymmetry",
    "ClassRow",
    "LinkClass",
    "MeasuredMachine",
    "class_rows",
    "measure_machine",
]


BY = ("class", "pair")
_SAME_BETA, _SAME_ALPHA = 1.2, 1.6
"""Links whose costs differ by less than these factors are of one class."""
_ASYMMETRIC = 1.25
"""Two directions whose bandwidths differ by more than this factor are reported."""
_NEARER = 1.25
"""A rank is nearer to its NIC than another where latency to other nodes, or else beta, is lower by this factor."""
_TABLES_SHARE = 0.4
"""Of the time that is left once the structure is known, for tables of congestion."""
_BATCH = 4
"""Samples of a class between two looks at its interval."""


@dataclass(frozen=True)
class LinkClass:
    """Links of one kind and their costs. `pairs`: ordered pairs of ranks, as they were measured."""

    name: str
    pairs: tuple[Pair, ...]
    line: Line


@dataclass(frozen=True)
class Asymmetry:
    """Two ranks between which one direction is so many times as fast as the other: that from `source` to `target`."""

    source: int
    target: int
    ratio: float


@dataclass(frozen=True)
class MeasuredMachine:
    """What was measured. `order`: all ranks, node after node, in each node those near the NIC first.

    `experiments`: their number. `is_precise`: whether every interval is as small as was asked for. `switch_tables`,
    `nic_tables`: the table of congestion of all switches, and of all NICs; none where no slowdown was seen.
    """

    structure: Structure
    classes: tuple[LinkClass, ...]
    order: tuple[int, ...]
    asymmetries: tuple[Asymmetry, ...]
    experiments: int
    is_precise: bool
    switch_tables: tuple[Slowdown, ...] = ()
    nic_tables: tuple[Slowdown, ...] = ()

    @property
    def kept_order(self) -> tuple[int, ...]:
        """All ranks, node after node, as they were in each node: those of `order` where nodes mix their ranks."""
        return tuple(rank for node in sorted(self.structure.nodes) for rank in sorted(node))

    def cluster(self, name: str, order: Sequence[int]) -> Cluster:
        """The nodes that were found, with the costs of the classes. `order[k]`: which rank is rank k of the cluster."""
        nodes = dict.fromkeys(self.structure.node_of(rank) for rank in order)
        return Cluster(name, tuple(self._node(number, f"{name}: a node", order) for number in nodes))

    def _node(self, number: int, name: str, order: Sequence[int]) -> NodeTemplate:
        ranks = [rank for rank in order if self.structure.node_of(rank) == number]
        place = {rank: k for k, rank in enumerate(ranks)}
        line_of = {pair: each.line for each in self.classes for pair in each.pairs}
        inside = self.structure.inside[number]
        links, switches = _inner(ranks, place, line_of, inside)
        switches = tuple(replace(switch, congestion=next(iter(self.switch_tables), None)) for switch in switches)
        nic_table = next(iter(self.nic_tables), None)
        nics = []
        for group in self.structure.nics[number]:
            away = [line_of[pair] for pair in line_of if (pair[0] in group) != (pair[1] in group) and
                    self.structure.node_of(pair[0]) != self.structure.node_of(pair[1])]  # fmt: skip
            # The slower of two NICs sets the pace of a link: a NIC is as fast as its fastest link.
            costs = min(line.alpha_s for line in away), min(line.beta_s_per_byte for line in away)
            nics.append(NicTemplate(tuple(sorted(place[rank] for rank in group)), *costs, nic_table))
        nics.sort(key=lambda nic: nic.ranks)
        return NodeTemplate(name, len(ranks), links, switches, tuple(nics))


def _inner(
    ranks: Sequence[int], place: dict[int, int], line_of: dict[Pair, Line], inside: Inside
) -> tuple[tuple[LocalLink, ...], tuple[SwitchTemplate, ...]]:  # fmt: skip
    """The links inside a node: a switch where every rank has both ports and all links cost the same."""
    pairs = list(permutations(ranks, 2))
    lines = {line_of[pair] for pair in pairs}
    if len(lines) == 1 and {*inside.out_ports} == {*inside.in_ports} == {*ranks}:
        (line,) = lines
        return (), (SwitchTemplate(tuple(sorted(place.values())), line.alpha_s, line.beta_s_per_byte),)
    links = []
    for source, target in pairs:
        held = [f"out{place[source]}"] if source in inside.out_ports else []
        held += [f"in{place[target]}"] if target in inside.in_ports else []
        held += [f"bus{k}" for k, bus in enumerate(inside.buses) if source in bus or target in bus]
        line = line_of[source, target]
        links.append(LocalLink(place[source], place[target], line.alpha_s, line.beta_s_per_byte, tuple(held)))
    return tuple(links), ()


def measure_machine(
    experiments: Experiments, by: str = "class", say: Callable[[str], None] = lambda _: None
) -> MeasuredMachine:
    """Measure: every pair roughly, then what is shared, then each class of links until its interval is small.

    `by`: of what a cost is measured, a class of links that cost about the same, or each ordered pair inside of a node.
    Raises `OutOfTimeError` where there is no time to find the structure; costs are then in `experiments.samples`.
    """
    ranks = experiments.prober.rank_count
    say(f"measuring {ranks * (ranks - 1)} pairs of ranks")
    alpha_s, beta = experiments.scan()
    say("measuring which links slow each other")
    structure = find_structure(experiments, alpha_s, beta)
    classes = _classes(structure, alpha_s, beta, by)
    say("measuring how many connections slow ports")
    tables = _tables(experiments, structure, alpha_s, beta)
    say(f"measuring {len(classes)} classes of links")
    is_precise = _refine(experiments, classes, beta)
    return MeasuredMachine(
        structure=structure,
        classes=tuple(LinkClass(name, tuple(pairs), _line(experiments, pairs)) for name, pairs in classes.items()),
        order=_order(structure, alpha_s, beta),
        asymmetries=tuple(_asymmetries(beta)),
        experiments=experiments.count,
        is_precise=is_precise,
        switch_tables=tables[0],
        nic_tables=tables[1],
    )


def _tables(
    experiments: Experiments, structure: Structure, alpha_s: Floats, beta: Floats
) -> tuple[tuple[Slowdown, ...], tuple[Slowdown, ...]]:
    """The tables of switches and NICs, as far as there is time for them: what costs are measured in is kept."""
    try:
        with experiments.at_most(_TABLES_SHARE):
            switch, nic = measured_tables(experiments, structure, alpha_s, beta)
    except OutOfTimeError:
        return (), ()
    return (() if switch is None else (switch,)), (() if nic is None else (nic,))


def _classes(structure: Structure, alpha_s: Floats, beta: Floats, by: str) -> dict[str, list[Pair]]:
    """Links by class: inside of nodes by their costs, or each by itself; between nodes by those of a pair of NICs."""
    inside = [pair for node in structure.nodes for pair in permutations(node, 2)]
    groups = [group for nics in structure.nics for group in nics]
    between = list[list[Pair]]()
    for one, other in combinations(groups, 2):
        if structure.node_of(one[0]) != structure.node_of(other[0]):
            between.append([pair for a in one for b in other for pair in ((a, b), (b, a))])
    named = dict[str, list[Pair]]()
    if by == "pair":
        named |= {f"rank {a} to {b}": [(a, b)] for a, b in inside}
        named |= {f"NIC of {pairs[0][0]} and of {pairs[0][1]}": pairs for pairs in between}
        return named
    for title, members in (("inside of nodes", [[pair] for pair in inside]), ("between nodes", between)):
        for k, links in enumerate(_alike(members, alpha_s, beta)):
            named[title if not k else f"{title}, slower {k}"] = links
    return named


def _alike(members: Sequence[list[Pair]], alpha_s: Floats, beta: Floats) -> list[list[Pair]]:
    """Members with about the same costs, together; those of the smallest beta first."""
    if not members:
        return []
    keys = []
    for cost, gap in ((beta, _SAME_BETA), (alpha_s, _SAME_ALPHA)):
        keys.append(classes_of(np.array([np.median([cost[pair] for pair in pairs]) for pairs in members]), gap))
    found: dict[tuple[int, int], list[Pair]] = {}
    for key, pairs in zip(zip(*keys, strict=True), members, strict=True):
        found.setdefault(key, []).extend(pairs)
    return [found[key] for key in sorted(found)]


def _refine(experiments: Experiments, classes: dict[str, list[Pair]], beta: Floats) -> bool:
    """More samples of each class, until its interval is small, it has many, or the time is over: then False."""
    taken = dict.fromkeys(classes, 0)
    try:
        while True:
            open_ = [name for name, pairs in classes.items() if not _is_done(experiments, pairs, taken[name])]
            if not open_:
                break
            for name in open_:
                pairs = classes[name]
                for _ in range(_BATCH):
                    k = taken[name]
                    experiments.more(pairs[k % len(pairs)], float(beta[pairs[k % len(pairs)]]), k + k // len(pairs))
                    taken[name] += 1
    except OutOfTimeError:
        return False
    return True


def _is_done(experiments: Experiments, pairs: Sequence[Pair], taken: int) -> bool:
    """Whether a class has an interval that is small enough, or as many samples as it may have."""
    sizes = [sample.flow.size_bytes for pair in pairs for sample in experiments.samples[pair]]
    off_by = _line(experiments, pairs).off_by(min(sizes), max(sizes))
    return off_by <= experiments.settings.precision or taken >= experiments.settings.most_samples


def _line(experiments: Experiments, pairs: Sequence[Pair]) -> Line:
    samples: list[Sample] = [sample for pair in pairs for sample in experiments.samples[pair]]
    return fit_line(samples)


def _order(structure: Structure, alpha_s: Floats, beta: Floats) -> tuple[int, ...]:
    """Ranks node after node, in each those near the NIC first; ranks that are as near stay in order."""
    found = list[int]()
    for node in sorted(structure.nodes):
        away = [rank for other in structure.nodes if other != node for rank in other]
        keys = [(0, 0)] * len(node)
        if away:
            medians = [np.array([np.median(cost[rank, away]) for rank in node]) for cost in (alpha_s, beta)]
            keys = list(zip(*(classes_of(values, _NEARER).tolist() for values in medians), strict=True))
        found += [rank for _, rank in sorted(zip(keys, node, strict=True))]
    return tuple(found)


def _asymmetries(beta: Floats) -> list[Asymmetry]:
    found = [Asymmetry(a, b, float(beta[b, a] / beta[a, b])) for a, b in permutations(range(len(beta)), 2)]
    return sorted((each for each in found if each.ratio > _ASYMMETRIC), key=lambda each: -each.ratio)


@dataclass(frozen=True)
class ClassRow:
    """A class of links in the units of topology files, to six digits; `links`: how many. None: not known yet."""

    name: str
    links: int
    alpha_us: float
    alpha_error_us: float | None
    beta_us_per_mb: float
    beta_error_us_per_mb: float | None
    spread: float
    samples: int
    outliers: int


def class_rows(machine: MeasuredMachine) -> list[ClassRow]:
    """The classes' costs with their intervals."""
    found = []
    for each in machine.classes:
        line, per_mb = each.line, BYTES_PER_MB / S_PER_US
        found.append(ClassRow(
            each.name, len(each.pairs), _short(line.alpha_s / S_PER_US), _known(line.alpha_error_s / S_PER_US),
            _short(line.beta_s_per_byte * per_mb), _known(line.beta_error_s_per_byte * per_mb), _short(line.spread),
            line.samples, line.outliers,
        ))  # fmt: skip
    return found


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _known(value: float) -> float | None:
    return _short(value) if value < float("inf") else None
