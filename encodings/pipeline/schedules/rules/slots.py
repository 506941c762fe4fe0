"""V-Half and V-Min as they are published: a building block in slots, as if all ops took as long and messages no time.

A block says in which slot each op of a micro-batch goes, on ranks with two stages in a V; it is repeated every six
slots, or seldomer where memory has no room for that. Weight gradients go into slots that are left. Then ops of the
warm-up, and what comes when the last micro-batch has begun, move up into earlier slots as far as memory allows (Qi et
al., "Pipeline parallelism with controllable memory", 2024, and the scheduler that they publish).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from gapless.array_types import Floats
from gapless.encodings.pipeline.order.orders import number
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.schedules.squeeze import changes, kept_peaks

__all__ = ["V_HALF", "V_MIN", "SlotBlock", "block_peaks", "in_slots"]

F, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHT  # noqa: E741, the field's letters
_PASSES = ((F, False), (F, True), (I, True), (I, False), (W, True), (W, False))
"""Of a micro-batch over the ranks: down and up, back down and up, and weight gradients; the kind, and whether the stage
is the second."""
_PERIOD = 6
"""Slots after which a block is repeated at least: the ops of a micro-batch on a rank."""

Slots = list[list[list[int]]]
"""By rank, pass and micro-batch."""


@dataclass(frozen=True)
class SlotBlock:
    """`down`: slots from one rank to the next down the ranks, forth and back; up the ranks it is one. `turn`: slots
    that the backward waits where it turns; `begin`: where it begins, if ranks are a multiple of `multiple`.
    """

    down: int
    turn: int
    begin: int
    multiple: int

    def slots(self, ranks: int, period: int) -> list[list[int]] | None:
        """Of the first micro-batch, by rank and pass, with as short waits at the turns as leave each op of a rank a
        slot of its own in every period; None where none do."""
        begin = self.begin if ranks % self.multiple == 0 else 0
        for more, up, then in product(range(period), repeat=3):
            if up + then <= more:
                found = self._of(ranks, up, begin + then, self.turn + more - up - then)
                if all(len({slot % period for slot in here}) == len(here) for here in found):
                    return found
        return None

    def _of(self, ranks: int, up: int, begin: int, turn: int) -> list[list[int]]:
        """With so many slots that are waited for at each turn."""
        last = self.down * (ranks - 1) + ranks + up
        back = last + 1 + begin
        end = back + self.down * (ranks - 1) + ranks + turn
        return [[self.down * rank, last - rank, back + self.down * rank, end - rank] for rank in range(ranks)]


V_HALF, V_MIN = SlotBlock(down=2, turn=1, begin=3, multiple=2), SlotBlock(down=1, turn=0, begin=2, multiple=3)


def in_slots(stages: Stages, block: SlotBlock) -> list[list[int]] | None:
    """The ops of each rank in their order, for two stages a rank in a V; None where memory has no room for them."""
    slots = _repeated(stages, block)
    if slots is None:
        return None
    slots = _played(_moved(stages, slots))
    cooled = _sequences(stages, _Cooling(stages, slots).run())
    return cooled if _fits(stages, cooled) else _sequences(stages, slots)


def _fits(stages: Stages, sequences: list[list[int]]) -> bool:
    return bool((kept_peaks(stages, sequences) <= stages.room_bytes).all())


def block_peaks(stages: Stages, block: SlotBlock) -> Floats:
    """The most that each rank keeps where the block is repeated every six slots, bytes, float of shape (P,)."""
    slots = _every(stages, block, _PERIOD)
    assert slots is not None, "six slots are enough on any number of ranks"
    return kept_peaks(stages, _sequences(stages, slots))


def _repeated(stages: Stages, block: SlotBlock) -> Slots | None:
    """The block every six slots, or as much seldomer as memory needs; None where it has no room for one either."""
    period, room_bytes = _PERIOD, stages.room_bytes
    while (slots := _every(stages, block, period)) is not None:
        peaks = kept_peaks(stages, _sequences(stages, slots))
        if (peaks <= room_bytes).all():
            return slots
        if (room_bytes <= 0).any() or period > slots[0][-1][0]:  # one micro-batch after the other
            return None
        step = block.down + 1  # where it divides the period, what goes down and up meets in slots of its own
        period = step * max(period // step + 1, int(period * (peaks / room_bytes).max() // step))
    return None


def _every(stages: Stages, block: SlotBlock, period: int) -> Slots | None:
    """The block every so many slots; None where ops would share some."""
    first = block.slots(stages.ranks, period)
    if first is None:
        return None
    later = range(0, period * stages.micro_batches, period)
    return [_with_weights([[slot + begin for begin in later] for slot in here]) for here in first]


def _with_weights(here: list[list[int]]) -> list[list[int]]:
    """A rank's slots with those of weight gradients, each the first one that is left."""
    busy, free, late = {slot for times in here for slot in times}, 0, (list[int](), list[int]())
    for backward, turn in sorted((slot, at) for at in (2, 3) for slot in here[at]):
        free = max(free, backward + 1)
        while free in busy:
            free += 1
        late[turn - 2].append(free)
        free += 1
    return [*here, *late]


def _by_slot(slots: Slots) -> list[tuple[int, int, int, int]]:
    """Slot, rank, pass and micro-batch of all ops."""
    return sorted((slot, rank, turn, m) for rank, here in enumerate(slots) for turn, times in enumerate(here)
                  for m, slot in enumerate(times))  # fmt: skip


def _length(slots: Slots) -> int:
    return 1 + max(times[-1] for here in slots for times in here)


def _sequences(stages: Stages, slots: Slots) -> list[list[int]]:
    """The ops of each rank by their slots."""
    found: list[list[int]] = [[] for _ in slots]
    for _, rank, turn, m in _by_slot(slots):
        found[rank].append(number(stages, _PASSES[turn][0], _stage(stages, rank, turn), m))
    return found


def _stage(stages: Stages, rank: int, turn: int) -> int:
    return stages.count - 1 - rank if _PASSES[turn][1] else rank


def _first(slots: Slots, rank: int, turn: int, m: int) -> int:
    """The slot after all that an op waits for."""
    here, found = slots[rank], [slots[rank][turn][m - 1] if m else -1]
    if turn:
        found.append(here[turn - 1 if turn < 4 else turn - 2][m])
    other = rank - 1 if turn in (0, 2) else rank + 1
    if turn < 4 and 0 <= other < len(slots):
        found.append(slots[other][turn][m])
    return max(found) + 1


class _Level:
    """Bytes that a rank keeps in each slot."""

    def __init__(self, stages: Stages, rank: int, here: list[list[int]], length: int) -> None:
        takes, leaves = changes(stages)
        rows = [(kind, _stage(stages, rank, turn)) for turn, (kind, _) in enumerate(_PASSES)]
        self.takes, self.leaves = ([float(each[row]) for row in rows] for each in (takes, leaves))
        self.room, self.busy, self.bytes = float(stages.room_bytes[rank]), [False] * length, [0.0] * length
        turns = {slot: turn for turn, times in enumerate(here) for slot in times}
        kept = 0.0
        for slot in range(length):
            turn = turns.get(slot)
            self.bytes[slot] = kept + (0.0 if turn is None else self.takes[turn])
            kept += 0.0 if turn is None else self.takes[turn] - self.leaves[turn]

    def move(self, turn: int, slot: int, first: int) -> int:
        """Where an op goes: into the first slot from `first` on that is left, and from which memory has room for it."""
        take, leave, found = self.takes[turn], self.leaves[turn], slot
        for at in range(slot - 1, first - 1, -1):
            if not self.busy[at] and self.bytes[at] + take <= self.room:
                found = at
            if self.bytes[at] + take - leave > self.room:
                break
        if found < slot:
            self.bytes[found] += take
            self.bytes[slot] -= leave
            for at in range(found + 1, slot):
                self.bytes[at] += take - leave
        self.busy[found] = True
        return found


def _moved(stages: Stages, slots: Slots) -> Slots:
    """Ops of the warm-up, and those when the last micro-batch has begun, in earlier slots."""
    length = _length(slots)
    levels = [_Level(stages, rank, here, length) for rank, here in enumerate(slots)]
    full, last = slots[0][3][0], slots[0][0][-1]
    for slot, rank, turn, m in _by_slot(slots):
        is_steady = (full, 0) <= (slot, rank) <= (last, 0)
        slots[rank][turn][m] = levels[rank].move(turn, slot, slot if is_steady else _first(slots, rank, turn, m))
    return slots


def _played(slots: Slots) -> Slots:
    """As soon as what each op waits for, and the one before it on its rank, are over."""
    free = [0] * len(slots)
    for _, rank, turn, m in _by_slot(slots):
        slots[rank][turn][m] = max(free[rank], _first(slots, rank, turn, m))
        free[rank] = slots[rank][turn][m] + 1
    return slots


class _Cooling:
    """The ranks' states, slot after slot, where weight gradients go last once the last micro-batch has begun."""

    def __init__(self, stages: Stages, slots: Slots) -> None:
        self.stages, self.before, self.micro_batches = stages, slots, stages.micro_batches
        self.begun = slots[0][0][-1]
        takes, leaves = changes(stages)
        self.takes, self.nets, self.room = takes.tolist(), (takes - leaves).tolist(), stages.room_bytes.tolist()
        self.kept = [0.0] * stages.ranks
        self.slots: Slots = [[[] for _ in _PASSES] for _ in slots]

    def run(self) -> Slots:
        """The new slots; those before where ranks get stuck."""
        left, most = sum(len(times) for here in self.before for times in here), _length(self.before)
        for slot in range(2 * most):
            for rank in range(self.stages.ranks):
                turn = self._pick(rank, slot)
                if turn is not None:
                    kind, stage = _PASSES[turn][0], _stage(self.stages, rank, turn)
                    self.kept[rank] += self.nets[kind][stage]
                    self.slots[rank][turn].append(slot)
                    left -= 1
            if not left:
                return self.slots
        return self.before

    def _pick(self, rank: int, slot: int) -> int | None:
        """The pass of the rank's op in a slot: until the last micro-batch has begun the same as before, then the one
        that came first of those that can; else a weight gradient, of the second stage first."""
        here, done = self.before[rank], [len(times) for times in self.slots[rank]]
        heads = sorted((here[turn][done[turn]], turn) for turn in range(4) if done[turn] < self.micro_batches)
        for at, turn in heads:
            if at == slot if (at, rank) <= (self.begun, 0) else slot >= self.begun and self._can(rank, turn, slot):
                return turn
        return next((turn for turn in (4, 5) if done[turn] < done[turn - 2]), None)

    def _can(self, rank: int, turn: int, slot: int) -> bool:
        """Whether what the rank's next op of a pass waits for is over, and there is room for it."""
        m, (kind, _) = len(self.slots[rank][turn]), _PASSES[turn]
        waits = [(rank, turn - 1)] if turn else []
        other = rank - 1 if turn in (0, 2) else rank + 1
        waits += [(other, turn)] if 0 <= other < self.stages.ranks else []
        is_over = all(len(times := self.slots[at][of]) > m and times[m] < slot for at, of in waits)
        return is_over and self.kept[rank] + self.takes[kind][_stage(self.stages, rank, turn)] <= self.room[rank]
