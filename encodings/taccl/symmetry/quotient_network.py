"""The quotient network: one link and one clock for each orbit under a network's rotations, for aggregated sends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.symmetry.groups import resources_of
from gapless.encodings.taccl.symmetry.masks import image_of, image_table
from gapless.encodings.taccl.symmetry.rotations import Rotations, find_rotations, no_rotations
from gapless.topologies.topology import Topology

__all__ = ["Message", "QuotientNetwork", "quotient_network"]

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Message:
    """Blocks (a bit mask) that start on a link at a time."""

    start_s: float
    link: int
    blocks: int


@dataclass(frozen=True)
class QuotientNetwork:
    """Ranks, links by orbit, and blocks: block b is all that rank b has at the start.

    `owners`: the ranks that have a block. Of each orbit k of links, one goes from `source[k]` to `target[k]` and takes
    `alpha_s[k]`, and `beta_s[k]` a block; `clocks[k]`: the orbits of what it holds exclusively; `images[k][g]`: the
    link that rotation g (`ranks[g]`) makes of it; `allowed[k]`: the blocks that may travel on it, as a mask.
    `one_at_a_time`: a rank sends a block to one rank at a time, see `reduction`.
    """

    topology: Topology
    owners: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    alpha_s: tuple[float, ...]
    beta_s: tuple[float, ...]
    clocks: tuple[tuple[int, ...], ...]
    images: tuple[tuple[int, ...], ...]
    allowed: tuple[int, ...]
    ranks: Ids
    one_at_a_time: bool

    @property
    def everything(self) -> int:
        """The mask of all blocks."""
        return sum(1 << owner for owner in self.owners)

    @cached_property
    def has_nodes(self) -> bool:
        """Whether there are several nodes of several ranks."""
        return 1 < self.topology.node_count < self.topology.device_count

    @property
    def copies(self) -> int:
        """The number of rotations, the identity included."""
        return len(self.ranks)

    @cached_property
    def clock_count(self) -> int:
        """Clocks are numbered below this."""
        return 1 + max(max(clocks) for clocks in self.clocks)

    @cached_property
    def rank_images(self) -> list[list[int]]:
        """`rank_images[g][r]`: where rotation g takes rank r."""
        table: list[list[int]] = self.ranks.tolist()
        return table

    @cached_property
    def _tables(self) -> list[list[list[int]]]:
        return [image_table(images) for images in self.rank_images]

    def image(self, rotation: int, mask: int) -> int:
        """The blocks that a rotation makes of some."""
        return image_of(self._tables[rotation], mask) if rotation else mask

    def unfolded(self, messages: list[Message]) -> list[Message]:
        """All images of messages, whose `link` is the number of an orbit, on links, in order of their starts."""
        every = [
            Message(message.start_s, self.images[message.link][g], self.image(g, message.blocks))
            for message in messages
            for g in range(self.copies)
        ]
        return sorted(every, key=lambda message: message.start_s)


def quotient_network(
    topology: Topology,
    owners: tuple[int, ...],
    block_bytes: int,
    allowed: NDArray[np.bool_] | None = None,
    one_at_a_time: bool = False,
    rotations: Rotations | None = None,
) -> QuotientNetwork:
    """The quotient network for blocks of equal size; `allowed[b, l]`, where not all may travel everywhere.

    Rotations are used where every rank has a block and all of them may go everywhere.
    """
    count = topology.device_count
    if allowed is not None or len(owners) < count:
        rotations = no_rotations(topology)
    elif rotations is None:
        rotations = find_rotations(topology)
    held = resources_of(topology)
    first = np.unique(rotations.link_orbit, return_index=True)[1]
    resource_count = len(topology.resources)
    clocks: list[tuple[int, ...]] = []
    for k, link in enumerate(first.tolist()):
        orbits = sorted(set(rotations.resource_orbit[held[link]].tolist()))
        clocks.append(tuple(orbits) if orbits else (resource_count + k,))
    all_blocks = sum(1 << owner for owner in owners)
    masks = [all_blocks] * len(first)
    if allowed is not None:
        masks = [sum(1 << owner for owner in owners if allowed[owner, link]) for link in first.tolist()]
    return QuotientNetwork(
        topology=topology,
        owners=owners,
        source=tuple(topology.link_source[first].tolist()),
        target=tuple(topology.link_target[first].tolist()),
        alpha_s=tuple(topology.alpha_s[first].tolist()),
        beta_s=tuple((topology.beta_s_per_byte[first] * block_bytes).tolist()),
        clocks=tuple(clocks),
        images=tuple(map(tuple, rotations.link_images(first).T.tolist())),
        allowed=tuple(masks),
        ranks=rotations.ranks,
        one_at_a_time=one_at_a_time,
    )
