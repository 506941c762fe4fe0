"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gapless.encodings.cupcake.question import METHODS
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.question.parameters import check_least, with_work

__all__ = ["DEFAULTS", "Parameters"]

_WORK = ("most_labels", "most_grid_cells", "most_extensions")
"""What counts work."""
FUSION_ONLY = "fusion-only"
"""The paper's own question: every group compressed in one mode."""
NAMES = (*METHODS[1:], FUSION_ONLY)
"""Of methods: those of the question but `auto`, and what `auto` compares with."""
_MINUTE_NODES = 20_000_000
"""Nodes of Algorithm 1 in about a minute, the time that it has by default."""


@dataclass(frozen=True)
class Parameters:
    """Of the label search and of the baselines that it starts from. All numbers are whole and >= 1."""

    most_labels: int = 4000
    """Labels that are kept at a cut in the last round; the first keeps a hundred at most, each later one three times as
    many."""

    grid_bins: tuple[int, ...] = (20, 200, 2000)
    """Steps between the least and the most end, of each grid over groups and modes in turn: a coarse one narrows the
    range of the next."""

    most_grid_cells: int = 2_800_000_000
    """Groups times modes times steps that a grid may look at, some ten seconds; above 1,200 gradients in two modes it
    has fewer steps for it."""

    most_extensions: int = 80_000_000
    """Times that a label over groups and modes gets one more group, counted for each mode, some ten seconds. 391
    gradients in two modes are proven to 0.01 % with 75 million."""

    bucket_sizes_mb: tuple[int, ...] = (2, 4, 8, 16, 25, 32, 64)
    """Sizes of buckets that are tried, in 10^6 bytes: 2 to 64 MB (Cupcake, section 5.3) and PyTorch's 25."""

    most_parts: int = 32
    """Even splits are tried into up to so many groups, from 2 on (Cupcake, section 5.3)."""

    most_thresholds: int = 64
    """Sizes from which selective compression compresses, that are tried: spread over the sizes that there are."""

    most_nodes: int | None = None
    """Nodes that Algorithm 1 visits; nothing (the default) for as many as the time allows, 300,000 in a second."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods `auto` tries: of affine, pareto, milp and algorithm1 the first that suits the costs, from the best
    of the baselines; then every group compressed in one mode (fusion-only), where several modes are offered."""

    def __post_init__(self) -> None:
        self.methods.check(NAMES)
        for name, number in (("bucket_sizes_mb", "size"), ("grid_bins", "number of steps")):
            if not getattr(self, name):
                raise InputError(f"{name}: must hold at least one {number}, got none")
        check_least(self, most_parts=2)  # an even split has two groups

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        nodes = max(1, int(share * _MINUTE_NODES))
        return replace(
            with_work(self, _WORK, share), most_nodes=nodes if self.most_nodes is None else min(nodes, self.most_nodes)
        )


DEFAULTS = Parameters()
