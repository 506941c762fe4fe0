"""The question of a collective of unlike shares, and the same in the chunks of a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gapless.encodings.taccl.unequal.experts import ExpertLoads
from gapless.errors import InputError
from gapless.io.formats.collective_file import collective_data
from gapless.ir.amounts import Amounts
from gapless.ir.collective import Collective
from gapless.options import SolveOptions
from gapless.report.short_repr import BriefQuestion
from gapless.topologies.topology import Topology

__all__ = ["Unequal", "UnequalInChunks"]


@dataclass(frozen=True, repr=False)
class Unequal(BriefQuestion):
    """Carry out an ALLTOALLV or ALLGATHERV on a topology as fast as possible.

    `experts`: the measured loads that the amounts were made of. Raises `InputError` where the topology has another
    number of ranks, or some bytes no path.
    """

    topology: Topology
    amounts: Amounts
    experts: ExpertLoads | None = None

    def __post_init__(self) -> None:
        ranks, known = self.topology.device_count, self.amounts.rank_count
        if ranks != known:
            raise InputError(f"matrix: must be over the {ranks} ranks of topology {self.topology.name!r}, got {known}")
        free = np.flatnonzero(self.topology.alpha_s + self.topology.beta_s_per_byte <= 0)
        if len(free):
            name = self.topology.link_name(int(free[0]))
            raise InputError(f"link {name}: alpha + beta must be > 0, got 0; give it a latency")

    @property
    def system(self) -> str:
        """`taccl`."""
        return "taccl"

    @property
    def description(self) -> dict[str, object]:
        """What is asked, in plain values."""
        return {
            "collective": self.amounts.collective,
            "ranks": self.amounts.rank_count,
            "shares_bytes": [list(row) for row in self.amounts.rows],
            "input_bytes": self.amounts.input_bytes,
            "output_bytes": self.amounts.output_bytes,
            "topology": self.topology.name,
            "nodes": self.topology.node_count,
            **({} if self.experts is None else {"experts": self.experts.description}),
        }

    @property
    def default_options(self) -> SolveOptions:
        """Within 5 % of the best possible."""
        return SolveOptions(gap=0.05)


@dataclass(frozen=True, repr=False)
class UnequalInChunks(BriefQuestion):
    """A question, and the chunks that a plan for it has cut the shares into."""

    question: Unequal
    collective: Collective

    @property
    def system(self) -> str:
        """`taccl`."""
        return self.question.system

    @property
    def pieces(self) -> int:
        """Into how many chunks a share is cut, at most."""
        collective = self.collective
        return max(Counter(zip(collective.owners, collective.destinations, strict=True)).values())

    @property
    def description(self) -> dict[str, object]:
        """What was asked, for the plan file, and in which chunks; `collective_of` reads the collective back from it."""
        return {**self.question.description, **collective_data(self.collective)}

    @property
    def default_options(self) -> SolveOptions:
        """Those of the question."""
        return self.question.default_options
