"""Other sparse allreduces as exchanges, to be run and trained by beside a plan: TopkDSA and gTopk.

TopkDSA (SparCML's split and allgather): even regions are added up by their owners, which gather all sums, densely where
that is less. gTopk: sets go up a binomial tree, at whose nodes two are added and the k largest kept, and the last one
goes down it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.allreduce import WORDS_PER_ENTRY, Entries, SparseAllreduce, added
from gapless.torch.sparse.plan import Regions, SparsePlan
from gapless.torch.sparse.relay import EmulatedLink, Hop, Wire

__all__ = ["SplitAllgather", "TreeTopk", "largest", "tree_hops", "tree_sum"]


def _even_plan(length: int, ranks: int) -> SparsePlan:
    """Even regions; everything goes straight, in rotation; all sums go to all."""
    regions = Regions(tuple(length * rank // ranks for rank in range(ranks + 1)), tuple(range(ranks)))
    pairs = [(rank, (rank + turn) % ranks) for turn in range(1, ranks) for rank in range(ranks)]
    contributions = tuple((rank, to, rank, to) for rank, to in pairs)
    sums = tuple((rank, to, rank) for rank, to in pairs)
    return SparsePlan(regions, 1.0, contributions, sums, None, "", balances=False)


class SplitAllgather:
    """TopkDSA as an exchange for `SparseState`, of gradients of one length; made and called by all ranks of a group.

    `dense_calls`: in which the sums were gathered without indices, since all of the region is fewer words.
    """

    def __init__(
        self, length: int, group: torch.distributed.ProcessGroup | None = None, link: EmulatedLink | None = None
    ) -> None:
        self.group, self.dense_calls = group, 0
        self._plan = _even_plan(length, rank_count(group))
        self._allreduce = SparseAllreduce(self._plan, group, link=link)
        self._dense_words = 0

    @property
    def received_words(self) -> int:
        """By this rank, in all calls."""
        return self._allreduce.words.total + self._dense_words

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        """The sums of all ranks' entries."""
        own = self._allreduce.reduced(given)
        held = self._allreduce.wire.numbers([len(own)])
        if WORDS_PER_ENTRY * sum(held) <= length:
            return self._allreduce.to_all(own, held, [])
        self.dense_calls += 1
        return self._densely(own, held)

    def _densely(self, own: Entries, held: Sequence[int]) -> Entries:
        """All regions that have sums, each as its values alone; entries that are 0 aren't among the sums."""
        cuts, rank, relay = self._allreduce.regions.cuts, torch.distributed.get_rank(self.group), self._allreduce.relay
        lengths = [end - begin if count else 0 for (begin, end), count in zip(pairwise(cuts), held, strict=True)]
        values = torch.zeros(lengths[rank], device=own.values.device)
        values[own.places - cuts[rank]] = own.values
        hops = [Hop(source, target, (source,)) for source, target, _ in self._plan.sums]
        before = relay.received_words
        blocks = relay(hops, {rank: values.view(torch.int32)}, lengths)
        self._dense_words += relay.received_words - before
        whole = torch.zeros(cuts[-1], device=own.values.device)
        for region, length in enumerate(lengths):
            whole[cuts[region] : cuts[region] + length] = blocks[region].view(torch.float32).to(whole.device)
        places = whole.nonzero().flatten()
        return Entries(places, whole[places])

    def state_dict(self) -> dict[str, int]:
        """What was received."""
        return {"received_words": self.received_words}

    def load_state_dict(self, data: Mapping[str, int]) -> None:
        """What `state_dict` gave."""
        self._dense_words = int(data["received_words"]) - self._allreduce.words.total


def tree_hops(ranks: int) -> list[tuple[int, int]]:
    """(source, target) of the binomial tree up to rank 0, level by level.

    >>> tree_hops(5)
    [(1, 0), (3, 2), (2, 0), (4, 0)]
    """
    hops, distance = list[tuple[int, int]](), 1
    while distance < ranks:
        hops += [(rank, rank - distance) for rank in range(distance, ranks, 2 * distance)]
        distance *= 2
    return hops


def largest(entries: Entries, count: int) -> Entries:
    """The entries of largest magnitude, of equal ones those of lower places; places rise."""
    order = entries.values.abs().sort(descending=True, stable=True).indices[:count]
    return entries.where(order.sort().values)


def tree_sum(sets: Sequence[Entries], count: int, length: int) -> Entries:
    """What gTopk makes of all ranks' entries, in one process."""
    held = list(sets)
    for source, target in tree_hops(len(held)):
        held[target] = largest(added([held[target], held[source]], 0, length), count)
    return held[0]


class TreeTopk:
    """gTopk as an exchange for `SparseState`: `count` entries are kept at each node of the tree.

    `received_words`: by this rank, in all calls; the sizes that go ahead of messages don't count.
    """

    def __init__(
        self, count: int, group: torch.distributed.ProcessGroup | None = None, link: EmulatedLink | None = None
    ) -> None:
        self.group, self.received_words = group, 0
        self.count, self._wire = count, Wire(group, link)
        self._rank, self._hops = torch.distributed.get_rank(group), tree_hops(rank_count(group))
        self._peers = torch.distributed.get_process_group_ranks(group)

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        """The k entries that are left at the root."""
        held = given
        for source, target in self._hops:
            if self._rank == source:
                self._send(held, target)
            elif self._rank == target:
                held = largest(added([held, self._receive(source, given)], 0, length), self.count)
        for source, target in reversed(self._hops):
            if self._rank == target:
                self._send(held, source)
            elif self._rank == source:
                held = self._receive(target, given)
        return held

    def _send(self, entries: Entries, to: int) -> None:
        size, words = self._wire.words(1).fill_(len(entries)), entries.packed().to(self._wire.device)
        torch.distributed.send(size, self._peers[to], group=self.group)
        self._wire.wait("out", words.nbytes)
        torch.distributed.send(words, self._peers[to], group=self.group)

    def _receive(self, source: int, like: Entries) -> Entries:
        size = self._wire.words(1)
        torch.distributed.recv(size, self._peers[source], group=self.group)
        words = self._wire.words(WORDS_PER_ENTRY * int(size))
        torch.distributed.recv(words, self._peers[source], group=self.group)
        self._wire.wait("in", words.nbytes)
        self.received_words += len(words)
        return Entries.unpacked(words, like.places.device)

    def state_dict(self) -> dict[str, int]:
        """What was received."""
        return {"received_words": self.received_words}

    def load_state_dict(self, data: Mapping[str, int]) -> None:
        """What `state_dict` gave."""
        self.received_words = int(data["received_words"])
