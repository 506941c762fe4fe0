"""Parameters: what a searcher may tune, each with what it is for and why it is what it is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from gapless.errors import InputError
from gapless.methods import MethodChoice

__all__ = [
    "Aggregation", "BoundParameters", "Chunking", "Greedy", "Matching", "Milp", "Parameters", "Repair", "Shares",
    "Sketches", "Switches", "Trees", "Wider",
]  # fmt: skip

ANY_SIZE = 1 << 30
"""As many chunks in a group as there are."""
_WORK = {
    "chunking": ("rows", "brief_rows"),
    "aggregation": ("messages", "patience_messages", "exchange_looks", "baseline_transfers"),
    "greedy": ("rows", "rows_of_small", "rounding_steps"),
    "matching": ("sends",),
    "trees": ("rows", "looks"),
    "milp": ("routing_work", "another_routing_work", "perturbed_rows", "exact_steps"),
    "shares": ("rounds", "rows", "perturbed_rows"),
}
"""What counts work."""


class _Part:
    """Every number is above 0, but for what `may_be_zero`, and of `shares` at most 1; else raises `InputError`."""

    section: ClassVar[str] = ""
    shares: ClassVar[tuple[str, ...]] = ()
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        name = self.section or type(self).__name__.lower()
        for key, value in vars(self).items():
            if value == ():
                raise InputError(f"{name}: {key} must hold at least one number, got none")
            for number in value if isinstance(value, tuple) else (value,):
                if not (number > 0 or (key in self.may_be_zero and number == 0)):
                    raise InputError(f"{name}: {key} must be > 0, got {value}")
                if key in self.shares and number > 1:
                    raise InputError(f"{name}: {key} must be at most 1, got {value}")


@dataclass(frozen=True)
class Chunking(_Part):
    """The search for the number of chunks."""

    numbers: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    """Numbers of chunks that are tried first, ascending, beside those that bandwidth and latency name."""
    most_numbers: int = 16
    """Numbers that are tried in all: the best is known to a few per cent by then."""
    every_number_to: int = 8
    """With a gap of 0, on few ranks, each number up to this one is tried with all work at last."""
    most_pieces: int = 64
    """The largest number that bandwidth or latency may name; the search may double it."""
    patience: int = 2
    """Numbers in a row that are no better, or that bounds rule out, after which it is left at that."""
    least_gain: float = 0.002
    """What counts as better, as a share."""
    most_sends: int = 60_000
    """Sends of chunks to ranks up to which a number is tried: what is large is in many pieces already."""
    tries: int = 150
    """Orders of sends for one number: those of a few matchings, which say which numbers are better."""
    rows: int = 40_000
    """Sends in all these orders, some tenths of a second: of many sends, fewer orders are tried."""
    brief_rows: int = 5_000
    """The same for the first attempts on a network without symmetry, where a matching or two says nearly as much."""
    gap: float = 1e-3
    """A number whose plan is proven to be this near to the best possible is not improved."""
    spared_gap: float = 5e-3
    """Where a first plan is proven to be this near, and that is near enough, no number is tried."""
    near_for_milp: float = 0.1
    """The MILP takes fewer chunks than the greedy; those in which the greedy's plan is longer by more don't help it."""
    far_factor: float = 1.15
    """Matchings are not tried in numbers in which the greedy is this many times as slow as in its best, nor beyond."""
    give_up_factor: float = 1.3
    """Larger numbers are not tried once one is this many times as slow as the best."""

    def __post_init__(self) -> None:
        if list(self.numbers) != sorted(set(self.numbers)):
            raise InputError(f"chunking: numbers must ascend, got {list(self.numbers)}")
        super().__post_init__()


@dataclass(frozen=True)
class Aggregation(_Part):
    """Aggregated sends, by randomised construction."""

    tries: int = 600
    """Constructions for each phase: most find their best within a hundred."""
    messages: int = 60_000
    """Messages of all constructions of a phase, so that large networks take no more than a second or two."""
    patience_messages: int = 30_000
    """Messages of constructions in a row that are no better, after which it is left at that."""
    hopeless_tries: int = 60
    """Constructions after which it is left at that where all are far behind the best plan of other methods."""
    hopeless_factor: float = 1.25
    """Where they take so many times as long as the best plan."""
    hopeless_library_factor: float = 1.1
    """The same for the libraries' algorithms of the first plan, which is found in less work: more is of little use."""
    restart_share: float = 0.6
    """The share of constructions that begin as the best one did: without, the best of many is hardly improved."""
    exchange_looks: int = 200_000
    """Links looked at while an ALLREDUCE is built from exchanges of whole sums, some 0.2 s: it wins on few bytes."""
    baseline_transfers: int = 120_000
    """Transfers of the libraries' variants, after which no more pieces of a pipeline are tried: some seconds."""
    most_ranks: int = 128
    """Ranks up to which aggregated sends and baselines are looked at: their latencies count on small machines."""

    shares = ("restart_share",)


@dataclass(frozen=True)
class Greedy(_Part):
    """Matching or rounded flow, then list scheduling."""

    rows: int = 400_000
    """Sends in all orders that are tried; a hundred thousand take about a second."""
    rows_of_small: int = 100_000
    """The same for problems of at most `most_binaries` of the MILP: more orders hardly help these."""
    seeds: int = 16
    """Seeds that matchings break ties by; a single one where there are more than 20,000 sends."""
    spare_shares: tuple[float, ...] = (0.0, 0.8, 0.9, 0.95, 1.0)
    """Until when a chunk may come into a bottleneck set a second time, as a part of the best time so far."""
    groups: tuple[int, ...] = (1, 2, 4, 8, ANY_SIZE)
    """How many chunks may travel together between nodes at most: more share a latency, and arrive later."""
    patience: int = 60
    """Perturbed orders in a row without improvement, after which it is left at that."""
    rounding_steps: int = 300
    """Steps of the solver for whole numbers of chunks on the paths of a flow."""
    hopeless_factor: float = 1.02
    """Where its quick plan takes so many times as long as the best, no more work makes up for that."""

    may_be_zero = ("spare_shares",)


@dataclass(frozen=True)
class Matching(_Part):
    """Matchings on the time-expanded graph, with restarts."""

    sends: int = 400_000
    """Sends in all tries, of all phases; where links share ports, one counts as several. A second makes 200,000."""
    patience: int = 600
    """Tries in a row without improvement, after which it is left at that."""
    long_patience: int = 300
    """The same where these tries took the work of `patience_sends`: most improvements come sooner."""
    patience_sends: int = 40_000
    """Sends without improvement, after which so many tries are enough."""
    restart_share: float = 0.7
    """The share of tries that go on from a moment of the best plan: without, its end is hardly improved."""
    alike_share: float = 0.5
    """The share of tries that choose as the best one did; of the others, of those with groups of one size."""
    once_share: float = 0.7
    """The share of tries in which a chunk comes into a bottleneck set once: right where its links are scarce."""
    unused_share: float = 0.3
    """The share of tries without one kind of links: a slow link keeps ports from fast ones."""
    paired_share: float = 0.7
    """The share of tries in which a port between bottleneck sets has one partner: of three, two may leave one idle."""
    groups: tuple[int, ...] = (1, 2, 3, 4, 8, ANY_SIZE)
    """How many chunks may travel together at most, by kind of link: more share a latency, and arrive later."""
    hopeless_factor: float = 1.05
    """Where the plan of a little work takes so many times as long as the best, no more work makes up for that."""

    shares = ("restart_share", "alike_share", "once_share", "unused_share", "paired_share")

    def are_enough(self, tries: int, sends: int) -> bool:
        """Whether so many tries in a row, of so many sends, without improvement are enough."""
        return tries >= self.patience or (tries >= self.long_patience and sends >= self.patience_sends)


@dataclass(frozen=True)
class Trees(_Part):
    """Packed spanning trees, which an ALLREDUCE goes up and down."""

    rows: int = 120_000
    """Sends in all orders that are tried; a hundred thousand take about a second."""
    looks: int = 3_000_000
    """How much growing trees may take for a number of chunks: passes over all chunks, times ranks, times links."""
    numbers: int = 2
    """Numbers of chunks whose plans are put in order, those first that loads and the longest tree promise most of."""
    hopeless_factor: float = 1.0
    """Where they promise so many times as long as the best plan takes, nothing is put in order."""
    most_root_looks: int = 20_000
    """Ranks times links up to which the roots of sums are chosen by bandwidth, by linear programs of some tenths of a
    second."""
    least_root_gain: float = 0.02
    """What these roots must save of the time by bandwidth, as a share, to be tried."""
    root_share: float = 0.15
    """The part of the matching's work that each number of chunks gets with these roots, before the best gets all."""
    near_roots: float = 1.02
    """The best of them gets all where it takes at most so many times as long as the best plan."""
    least_fill: float = 0.01
    """What a plan takes beyond the time by bandwidth of its roots at least, as a share: the first chunk comes late."""
    hopeless_roots_factor: float = 1.1
    """Where roots on all ranks alike take so many times as long as the best plan, no plan with such roots is looked
    for; and where they take so many times as long as trees probably do, these are packed before anything else."""


@dataclass(frozen=True)
class Shares(_Part):
    """Collectives of unlike shares: a fluid, pieces along its paths, list scheduling."""

    rounds: int = 150
    """Rounds of cheapest paths of the fluid, fewer on large networks; they take it to a few per cent of the best."""
    parts: tuple[int, ...] = (16, 64)
    """Into how many pieces a share is cut that takes as long as the busiest lane; smaller shares into fewer."""
    routing_rounds: int = 4
    """How often all pieces choose their paths."""
    messages: tuple[int, ...] = (16, 8, 32, 4, 64, 2, 128)
    """Parts of the busiest lane's time that a message may take: long ones save alphas, short ones the wait for them."""
    rows: int = 250_000
    """Sends of pieces in all orders that are tried; a hundred thousand take about a second."""
    perturbed_rows: int = 150_000
    """Sends of pieces in all perturbed orders of the best of these."""
    packed_pieces: tuple[int, ...] = (4, 8, 16)
    """Of an ALLGATHERV, into how many pieces the mean share is cut, each for a tree of its own, in turn."""
    packing_passes: int = 4
    """How often all trees are grown."""
    most_packed_sends: int = 4_000
    """Sends of a plan along such trees, at most: they take a tenth of a second to grow."""
    hopeless_packing: float = 1.25
    """More pieces for trees aren't tried where the plan so far takes so much longer than what would do."""
    matched_pieces: tuple[int, ...] = (3, 16)
    """Of an ALLGATHERV, into how many pieces the mean share is cut for matchings, in turn."""
    most_matched_sends: int = 20_000
    """Sends of such a matching, at most: of more ranks, shares are cut into fewer pieces."""
    most_program_variables: int = 8_000
    """Pairs of source and link up to which the linear program of the fluid is solved exactly for the bound."""


@dataclass(frozen=True)
class Switches(_Part):
    """Operations of switches that add up and multicast."""

    most_doublings: int = 8
    """How often the number of pieces is doubled from one, at most."""
    most_transfers: int = 40_000
    """Transfers of a plan, those in operations of switches counted one by one; such plans take a second to make."""


@dataclass(frozen=True)
class Milp(_Part):
    """The thesis's three stages."""

    most_binaries: int = 2_500
    """Orbits of (chunk, link) of all phases up to which it is solved in seconds: small problems."""
    routing_work: int = 5_000_000
    """Work for the first routing of all phases: steps of the solver, each as large as the model; some seconds."""
    routing_gap: float = 0.01
    """The first routing is proven to within this, or to within the gap asked for where that is less."""
    connection_s: float = 1e-8
    """Where switches have congestion: the time that a link less (uc-min) or more (uc-max) of theirs is worth."""
    routings: int = 5
    """More routings of least time: their schedules differ by a tenth, and only scheduling them says which is best."""
    another_routing_work: int = 1_000_000
    """Work for each of those, about a second."""
    patience: int = 2
    """How many of them in a row may make the schedule no better before it is left at that."""
    least_gain: float = 1e-3
    """What counts as better, as a share."""
    groups: tuple[int, ...] = (2, 4, 8)
    """How many chunks of sums may travel together at most before the exact stage."""
    perturbations: int = 20
    """Perturbed orders in a row without improvement, after which it is left at that."""
    perturbed_rows: int = 100_000
    """Sends in all perturbed orders of a routing, about a second, so that time is left for the exact stage."""
    exact_steps: int = 100
    """Steps of the solver for contiguity, the exact stage: it finds most of what it finds at once."""


@dataclass(frozen=True)
class Sketches(_Part):
    """The search over sketches, of `--sketch auto`."""

    parts: tuple[int, ...] = (1, 2, 4, 8)
    """Into how many parts a rank's data are cut; finer ones hardly outweigh the latency of their links."""
    senders: int = 2
    """Ranks of a NIC that are tried as its sender; the receiver is its first."""
    first_share: float = 0.2
    """The part of all other searches' work that a first try takes, some three seconds: there are dozens."""
    best: int = 2
    """How many of the best tries are repeated, with all of the work."""
    automorphisms: int = 200
    """Automorphisms of a node that are looked at; a node with more is so symmetric that rotations find enough."""
    most_matched: int = 32
    """The largest node whose ranks are given to the graph matcher, whose time may grow exponentially."""

    shares = ("first_share",)


@dataclass(frozen=True)
class Wider(_Part):
    """The look at the question without its sketch, chunks or method, after the answer."""

    share: float = 0.1
    """The part of the greedy's work that it takes, some tenths of a second, as a solve under a sketch takes seconds."""
    numbers: tuple[int, ...] = (1, 2, 4, 8)
    """Numbers of chunks that are tried: those that are best at most sizes."""
    aggregated_share: float = 0.02
    """The part of the work on aggregated sends, which is done where the greedy finds nothing better."""
    least_gain: float = 0.01
    """What is worth a line: so much less than the plan takes, as a share."""

    shares = ("share", "aggregated_share", "least_gain")


@dataclass(frozen=True)
class Repair(_Part):
    """An earlier plan as a start, of `--from`."""

    looks: int = 600
    """Branches through busy clocks that are cut and grown anew: a look is a shortest path, about a millisecond."""
    rows: int = 100_000
    """Sends in all orders that are tried, about a second."""
    patience: int = 8
    """Perturbed orders in a row without improvement, after which it is left at that."""
    close: float = 0.02
    """A plan within this share of its bound, or the gap that is asked for, is put in no other order."""
    near: float = 0.1
    """Beside a plan within this share of its bound no fresh one is made."""
    matched_sends: int = 20_000
    """Sends of all matchings of the fresh one, some tenths of a second; none where a single one has more."""
    share: float = 0.02
    """The part of the work of a fresh solve that the methods take where the first plan is the best one."""

    shares = ("share",)


@dataclass(frozen=True)
class BoundParameters(_Part):
    """Limits on the work of lower bounds; larger ones make them stronger and slower."""

    section = "bounds"

    most_pairs: int = 4_000_000
    """Pairs of chunk and link up to which bounds look at single chunks; at most a few seconds on one core."""
    most_rank_pairs: int = 1_000_000
    """Pairs of chunk and rank up to which the bound for any chunking follows single bytes, and bytes in units."""
    cut_times: int = 8
    """Times at the boundary of a cut for which chunks that come later are counted alone; more add little."""
    most_counted_chunks: int = 300
    """Chunks that one rank must get, up to which they are counted one by one, in time that grows with their square."""
    time_steps: int = 20
    """Into how many steps the time of a message inside a node is cut at least, where reached ranks are counted."""
    most_flow_variables: int = 60_000
    """Orbits of pairs of commodity and link up to which a concurrent flow is solved: the simplex takes seconds."""
    most_tree_variables: int = 20_000
    """Orbits of links up to which trees are packed, in several linear programs; above, cuts alone have to do."""
    most_partition_looks: int = 300_000
    """Ranks times links that are looked at for partitions and sets that sums break; some tenths of a second."""
    most_sum_columns: int = 2_000
    """Orbits of links, times sums that differ, up to which trees of sums for several ranks are packed."""
    most_packings: int = 20
    """Linear programs for the trees of several groups together; each adds sets of ranks that the last one missed."""
    most_sum_steps: int = 10
    """Steps, each of the shortest message, up to which it is tried out whether a byte's sum can be everywhere."""
    most_sum_rows: int = 60_000
    """Rows of the model of a byte's sum, up to which it is solved."""
    sum_work: int = 50
    """Steps of the solver on each such model, each about what a linear program of a few thousand rows takes."""


@dataclass(frozen=True)
class Parameters:
    """What the searches of TACCL may be tuned by."""

    methods: MethodChoice = field(default_factory=MethodChoice)
    """Which methods are tried (`methods.py`)."""
    chunking: Chunking = field(default_factory=Chunking)
    """The search for the number of chunks."""
    aggregation: Aggregation = field(default_factory=Aggregation)
    """Aggregated sends."""
    greedy: Greedy = field(default_factory=Greedy)
    """The greedy."""
    matching: Matching = field(default_factory=Matching)
    """Matchings with restarts."""
    trees: Trees = field(default_factory=Trees)
    """Packed spanning trees."""
    switches: Switches = field(default_factory=Switches)
    """Switches that add up and multicast."""
    milp: Milp = field(default_factory=Milp)
    """The MILP."""
    shares: Shares = field(default_factory=Shares)
    """Collectives of unlike shares."""
    sketches: Sketches = field(default_factory=Sketches)
    """The search over sketches."""
    wider: Wider = field(default_factory=Wider)
    """The look at the question without what narrows it."""
    repair: Repair = field(default_factory=Repair)
    """An earlier plan as a start."""
    bounds: BoundParameters = field(default_factory=BoundParameters)
    """How much the lower bounds look at."""

    def with_share(self, share: float) -> Parameters:
        """The same with a share of the work."""
        changed = {}
        for name, counted in _WORK.items():
            part = getattr(self, name)
            less = {key: max(min(1, getattr(part, key)), int(share * getattr(part, key))) for key in counted}
            changed[name] = replace(part, **less)
        look = self.wider
        shares = {name: min(1.0, share * getattr(look, name)) for name in ("share", "aggregated_share")}
        return replace(self, **changed, wider=replace(look, **shares))
