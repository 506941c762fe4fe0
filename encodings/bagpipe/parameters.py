"""What a searcher may tune, and why it is as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from gapless.encodings.bagpipe.question import METHODS
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.question.parameters import with_work

__all__ = ["Baselines", "Bound", "Lookahead", "Parameters", "Replication", "Search", "Synchronised"]

_WORK = ("search.rounds", "bound.rounds")
"""What counts work."""
_MOST = 1e6
"""Sums over all rows of a batch, weighted so, are still exact to a millionth."""


@dataclass(frozen=True)
class Search:
    """Of the local search for the objectives beyond the paper's. All are whole numbers >= 1, `rounds` >= 0."""

    rounds: int = 24
    """Blocks of examples that are placed anew in each batch; 0 keeps the start. On a click log's batch of 16,384 x 26,
    56 rounds save 0.4 to 0.7 % more rows in twice the time."""

    first_blocks: int = 4
    """The batch is cut into so many blocks at first; each stage goes twice through the batch, then halves the blocks.
    Large blocks change much at once, small ones settle the rest."""

    smallest_block: int = 8
    """Blocks aren't halved below so many examples: the time of a transport hardly falls any more."""

    load_power: int = 32
    """Of `max-load`: the power of loads whose sum stands for the largest of them. At 8 trainers the two differ by 7 %
    at most, and the search still sees what happens on trainers that are nearly as busy."""

    def __post_init__(self) -> None:
        _check(self, least={"rounds": 0})


@dataclass(frozen=True)
class Bound:
    """Of the lower bound for the objectives beyond the paper's, of a relaxation that is improved round by round.

    `rounds` is a whole number >= 0, `examples` one >= 1, the others are numbers > 0.
    """

    rounds: int = 10
    """Improvements of the bound in each batch; 0 for no bound. On a click log's batch of 16,384 x 26, 10 rounds leave a
    gap of 13 %, 40 rounds one of 9 % in four times the time."""

    examples: int = 8
    """Examples that may get weight for each id and trainer: those that most clearly belong there. More take more
    memory."""

    temperature: float = 0.3
    """How decided examples are between trainers, in rows: small follows every difference, large none. Found by trial on
    click logs."""

    price_step: float = 0.15
    """How fast prices of places answer to crowded trainers, as a share of the temperature."""

    rate_step: float = 0.2
    """Of `max-load`: how fast the rates lean towards loaded trainers, as an exponent of a load of twice the mean."""

    def __post_init__(self) -> None:
        _check(self, least={"rounds": 0})


@dataclass(frozen=True)
class Synchronised:
    """Of the objective `synchronised`: what counts how much against one row that is synchronised at once, and how many
    batches are partitioned together. `window` is a whole number >= 1, `sweeps` one >= 0, the others are numbers > 0.
    """

    next: float = 0.5
    """That a row which the next batch uses has one user. Between 0.3 and 0.9 it makes no difference on a click log."""

    message: float = 0.2
    """One row sent from one trainer to another at once. On a click log 0.2 saves 5 % of the messages for 1 % more rows,
    1.0 saves 12 % for 15 %."""

    background: float = 0.02
    """One row sent in the background, or fetched. Too small to win against anything on the critical path. Of the
    objective `time` too, against a message on the critical path."""

    window: int = 1
    """Batches that are partitioned together; `milp` is exact for all of them at once. 4 save 4 % more rows on a click
    log in three times the time, and plans come so many batches later."""

    sweeps: int = 1
    """How often each batch of a window is partitioned again once both its neighbours are; more than 1 save less than
    1 % more."""

    def __post_init__(self) -> None:
        _check(self, least={"sweeps": 0})


@dataclass(frozen=True)
class Lookahead:
    """Of the lookahead. All are whole numbers >= 1."""

    processes: int = 1
    """Processes that look ahead, each for its part of the tables; the plan is the same with any number, which pays with
    many tables and cores. More than one need a lookahead instead of a cache size."""

    def __post_init__(self) -> None:
        _check(self, least={})


@dataclass(frozen=True)
class Replication:
    """Of the choice of tables that stay on every trainer; a whole number >= 1."""

    batches: int = 100
    """Batches that are planned to see what each table moves; more see more rows come back, in proportionally more
    time. They are planned once more with the tables that are chosen."""

    def __post_init__(self) -> None:
        _check(self, least={})


@dataclass(frozen=True)
class Baselines:
    """Of the baselines that a run of `--design auto` is held against; a whole number >= 0."""

    batches: int = 20
    """Batches that each of them is planned for; 0 for none. A run of no more is behind none of them, a longer one isn't
    in its first batches."""

    def __post_init__(self) -> None:
        _check(self, least={"batches": 0})


@dataclass(frozen=True)
class Parameters:
    """How each batch is partitioned for the objectives beyond the paper's, which has an exact method."""

    search: Search = field(default_factory=Search)
    """Which partitions are tried."""

    bound: Bound = field(default_factory=Bound)
    """What no partition is better than."""

    lookahead: Lookahead = field(default_factory=Lookahead)
    """Who looks ahead."""

    synchronised: Synchronised = field(default_factory=Synchronised)
    """What counts how much for the objective `synchronised`."""

    replication: Replication = field(default_factory=Replication)
    """How replicated tables are chosen."""

    baselines: Baselines = field(default_factory=Baselines)
    """What a run must not be behind."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods `auto` may try: of those for the objective the first, in the order search, transport, contiguous,
    random, min_cost_flow, milp, lp."""

    def __post_init__(self) -> None:
        self.methods.check(METHODS[1:])

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        return with_work(self, _WORK, share)


def _check(part: Search | Bound | Lookahead | Synchronised | Replication | Baselines, least: dict[str, int]) -> None:
    """Whole numbers are >= 1, or the least that is named; others are > 0, at most 10^6. Raises `InputError`."""
    for name, value in vars(part).items():
        if isinstance(value, int) and value < least.get(name, 1):
            raise InputError(f"{name}: must be >= {least.get(name, 1)}, got {value}")
        if isinstance(value, float) and not 0 < value <= _MOST:
            raise InputError(f"{name}: must be > 0, at most {_MOST:g}, got {value}")
