"""What a person may tune of the lower bounds: how much they look at before quicker, weaker ones have to do."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gapless.errors import InputError

__all__ = ["BoundParameters"]


@dataclass(frozen=True)
class BoundParameters:
    """Limits on the work of lower bounds; larger ones make them stronger and slower."""

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
    most_packings: int = 20
    """Linear programs for the trees of several groups together; each adds sets of ranks that the last one missed."""
    most_sum_steps: int = 10
    """Steps, each of the shortest message, up to which it is tried out whether a byte's sum can be everywhere."""
    most_sum_rows: int = 60_000
    """Rows of the model of a byte's sum, up to which it is solved."""
    sum_work: int = 50
    """Steps of the solver on each such model, each about what a linear program of a few thousand rows takes."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InputError(f"bounds: {field.name} must be > 0, got {value}")
