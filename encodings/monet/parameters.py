"""What the methods may be tuned by. The defaults are those that the tables of docs/monet.md were measured with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.question.parameters import with_work

__all__ = ["Bounding", "Cooling", "Encoding", "Fitting", "Moves", "Nesting", "Parameters"]

PARTS = ("rules", "refutation", "nested", "relaxation", "annealing", "exact")
"""Of MONeT's own search, in the order in which they are tried; without rules it starts from keeping all."""

_WORK = (
    "bounding.start_steps",
    "bounding.steps",
    "bounding.more_steps",
    "bounding.exact_steps",
    "cooling.steps_per_node",
)
"""What counts work."""


@dataclass(frozen=True)
class Bounding:
    """How much work the lower bound gets, and when the integer program is tried. A step is about a linear program."""

    start_steps: int = 100
    """Steps of each relaxation that is to suggest a start; with one window most take 20 to 40."""
    start_gap: float = 0.003
    """Gap at which such a relaxation ends: a start needs no proof."""
    tighter_budgets: tuple[float, ...] = (0.9, 0.8)
    """Starts come from relaxations at these shares of the budget too, as a relaxation holds less than a plan has to."""
    steps: int = 300
    """Steps of the relaxation of each list of cuts; more cuts gain more than more steps."""
    more_steps: int = 3500
    """The same for a second try on a small graph, of lists whose best point is above what is proven: VGG-16 is closed
    in one of these."""
    lists_before_more: int = 5
    """The second tries come after so many lists of cuts."""
    small_cells: int = 10_000
    """Forward times backward nodes up to which single stages are windows: UNet has 7,740, ResNet-50 51,754."""
    exact_steps: int = 20_000
    """Steps of the integer program of a small graph, which takes turns with the relaxations."""
    slice_steps: int = 20_000
    """How much of either goes on before it is the other's turn, in steps of the search. Whichever raises the bound more
    has three turns in a row."""
    proof_steps: int = 20_000
    """Steps of the second solve, without presolve, that a claim of optimality or infeasibility has to pass."""
    weight: float = 3.0
    """A model's steps take as long as so many of the search's, times its columns, times the square root of their
    number: bound and search see of each other what is older than that, whatever the machine does. On a large graph
    (`cooling.large_nodes`) it is less, as the search's steps take longer."""

    def __post_init__(self) -> None:
        for name in ("start_steps", "steps", "more_steps", "exact_steps", "slice_steps", "proof_steps"):
            _check(f"bounding.{name}", getattr(self, name), 1)
        _check("bounding.start_gap", self.start_gap, 0.0)
        for share in self.tighter_budgets:
            _check("bounding.tighter_budgets", share, 0.0, 1.0)
        for name in ("small_cells", "lists_before_more"):
            _check(f"bounding.{name}", getattr(self, name), 0)
        _check("bounding.weight", self.weight, 1e-9)


@dataclass(frozen=True)
class Cooling:
    """The rounds of simulated annealing. Temperatures are shares of the forward pass."""

    hot: float = 0.01
    """Where a round from a start begins: moves that cost a percent are taken every third time."""
    warm: float = 0.003
    """Where a round from the best plan begins, which is not to lose it."""
    cold: float = 0.0002
    """Where a round ends: hardly anything worse is taken."""
    overflow_share: float = 0.05
    """Passing the budget by this share of it costs as much as a whole forward pass, so that a search may pass through
    plans that don't fit."""
    urgency: float = 8.0
    """As long as nothing fits, passing the budget costs so many times as much, and rounds are shorter by that much."""
    steps_per_node: int = 550
    """Steps of the first round, times the geometric mean of the numbers of forward and backward nodes."""
    travelling: float = 4.0
    """With a link to the host a look at a keep-set takes so many times as long: rounds are shorter by that much."""
    large_nodes: float = 230.0
    """Geometric mean of the numbers of forward and backward nodes beyond which a graph is large, a little more than
    ResNet-50's. One of k times as many has temperatures k times lower, as a move changes a smaller share of the step,
    and rounds of k times fewer steps instead of k times more: each look takes k times as long."""
    growth: float = 1.5
    """By how much the next two rounds are longer: a longer round ends lower, a shorter one sooner."""
    patience: int = 6
    """The search ends after so many rounds in a row without a better plan."""

    def __post_init__(self) -> None:
        if not 0 < self.cold <= self.warm <= self.hot:
            raise InputError(f"cooling: must have 0 < cold <= warm <= hot, got {self.cold}, {self.warm}, {self.hot}")
        _check("cooling.overflow_share", self.overflow_share, 1e-9)
        _check("cooling.urgency", self.urgency, 1.0)
        _check("cooling.travelling", self.travelling, 1.0)
        _check("cooling.steps_per_node", self.steps_per_node, 1)
        _check("cooling.large_nodes", self.large_nodes, 1.0)
        _check("cooling.growth", self.growth, 1.0)
        _check("cooling.patience", self.patience, 1)

    def excess(self, cells: int) -> float:
        """How many times larger than large a graph is, of so many forward times backward nodes; 1 if it isn't."""
        return max(1.0, math.sqrt(cells) / self.large_nodes)


@dataclass(frozen=True)
class Moves:
    """What a move of the search changes. Shares of the moves; the rest choose another variant of a backward node."""

    keep: float = 0.3
    """Keep a tensor after the forward pass, or not."""
    drop: float = 0.15
    """Drop a tensor over its longest gap, or not."""
    lead: float = 0.25
    """Recompute a tensor some stages before it is needed: worth 1 % at UNet's 5 GiB."""
    mean_lead: float = 4.0
    """Of the leads that moves try, in stages."""
    offload: float = 0.3
    """Keep a tensor on the host, or not, where there is a link; before all other moves."""

    def __post_init__(self) -> None:
        for name in ("keep", "drop", "lead", "offload"):
            _check(f"moves.{name}", getattr(self, name), 0.0, 1.0)
        if self.keep + self.drop + self.lead > 1:
            total = self.keep + self.drop + self.lead
            raise InputError(f"moves: keep, drop and lead must be at most 1 together, got {total}")
        _check("moves.mean_lead", self.mean_lead, 1e-9)


@dataclass(frozen=True)
class Nesting:
    """The dynamic programme over nested checkpoints, where no plan of a simple rule fits."""

    most_places: int = 64
    """Places that may be checkpoints: of equal stretches of the forward pass, the one that the least passes each."""
    levels: int = 300
    """Levels of the budget in which held bytes are counted, rounded up."""
    excess: tuple[float, ...] = (1.0, 1.03, 1.06, 1.1)
    """Budgets to reckon with, as shares of the budget: plans take less than is reckoned, so more may fit."""
    most_cells: int = 20_000_000
    """Forward times backward nodes up to which it is tried, and the proof that nothing fits that comes before it."""

    def __post_init__(self) -> None:
        _check("nesting.most_cells", self.most_cells, 0)
        _check("nesting.most_places", self.most_places, 2)
        _check("nesting.levels", self.levels, 1)
        for share in self.excess:
            _check("nesting.excess", share, 1.0)


@dataclass(frozen=True)
class Fitting:
    """The constraint programmes that narrow the least budget, where one was found that isn't proven."""

    budgets: int = 16
    """How many are tried at most; 0 for none."""
    steps: int = 300
    """Of each, and once more where a proof is confirmed."""
    tolerance: float = 0.003
    """How close proof and plan are to come, as a share."""
    most_cells: int = 10_000
    """Forward times backward nodes up to which it is tried: UNet has 7,740, ResNet-50 51,754."""

    def __post_init__(self) -> None:
        _check("fitting.budgets", self.budgets, 0)
        _check("fitting.steps", self.steps, 1)
        _check("fitting.tolerance", self.tolerance, 1e-6)
        _check("fitting.most_cells", self.most_cells, 0)


@dataclass(frozen=True)
class Encoding:
    """What the method `gist` is taken to find and to cost; it searches nothing."""

    zeros: tuple[float, ...] = (0.5,)
    """Share of zeros in the outputs of ReLUs: one for all, or one for each in the order of the forward pass. Behind a
    batch norm it is about a half before training."""
    csr_bytes_per_s: float = 0.0
    """Rate at which a dense tensor becomes CSR, in its bytes; 0 for what the memory's bandwidth allows. The thesis
    measured 144 ms for 2.26 GB with cuSPARSE on a P100: 15.7e9."""

    def __post_init__(self) -> None:
        for share in self.zeros:
            _check("encoding.zeros", share, 0.0, 1.0)
        _check("encoding.csr_bytes_per_s", self.csr_bytes_per_s, 0.0)


@dataclass(frozen=True)
class Parameters:
    """All of them."""

    bounding: Bounding = field(default_factory=Bounding)
    """The lower bound and the integer program."""
    cooling: Cooling = field(default_factory=Cooling)
    """The rounds of the search."""
    moves: Moves = field(default_factory=Moves)
    """The steps of the search."""
    nesting: Nesting = field(default_factory=Nesting)
    """A first plan for the least budgets."""
    fitting: Fitting = field(default_factory=Fitting)
    """Of the least budgets, which the proof and the plan narrow from both sides."""
    encoding: Encoding = field(default_factory=Encoding)
    """Of the method `gist` alone."""
    least_budget_steps: int = 20_000
    """Steps of the search for the least budget that a plan fits in, where the one that was given is impossible."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which parts of the search are tried: rules, refutation, nested, relaxation, annealing, exact."""

    def __post_init__(self) -> None:
        self.methods.check(PARTS)
        _check("least_budget_steps", self.least_budget_steps, 0)

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


def _check(name: str, value: float, least: float, most: float = math.inf) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        rule = f">= {least:g}" if math.isinf(most) else f"in {least:g}..{most:g}"
        raise InputError(f"{name} must be {rule}, got {value}")
