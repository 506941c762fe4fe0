"""A model whose blocks follow plans, each its own, within one budget for all of them.

::

    model = gapless.torch.planned_blocks(model, model.layers, budget="0.5x")
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)

The first call of a kind runs each block by the plan that keeps least, and notes which blocks are called, in which
order. Then plans are shared out, and followed from the second call on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gapless.checker import check
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.options import SolveOptions
from gapless.question.fields import Share, SizeOrShare
from gapless.torch.calls.choices import BlockPlan, Choices
from gapless.torch.calls.code import CallProgram
from gapless.torch.calls.composed import composed
from gapless.torch.calls.model import Entry, Follows, Planned, autocast_now, following, kind_of, say
from gapless.torch.calls.shares import BlockCall, least_peak, least_time, peak_of
from gapless.torch.capture.model_state import check_traceable
from gapless.torch.library import Module, Tensor, named_tensors, tree_flatten
from gapless.units import format_bytes

__all__ = ["PlannedBlocks", "Shares", "planned_blocks"]

_MOST_KINDS = 32


def planned_blocks(
    model: Module,
    blocks: Sequence[Module],
    budget: str | int,
    *,
    close: Collection[str] = (),
    cache: str | Path | None = None,
    options: SolveOptions | None = None,
    report: Callable[[str], None] | None = None,
) -> Module:
    """Let the calls of a model's blocks follow plans, all within one budget of memory. Returns the same model.

    For blocks that `fully_shard` gathers one by one, before or after this call, and for models that can't be captured
    as a whole. What is outside of the blocks runs as before, and its memory isn't counted.

    `blocks`: modules inside of the model, none inside of another, which it calls one after the other. `budget`: in
    bytes, or a share of what the blocks take where nothing is recomputed, as "0.5x": what they keep, what one works
    with, and gradients, above parameters and the first arguments. Of a sharded block's gradients only shards stay.
    `options`: of the solves of a block, some ten of a kind; by default within 5 %, or 10 s each. `close`, `cache`: as
    for `planned`. `report`: is called with a line for each new kind of calls; by default it goes to stderr.

    Raises `InputError` for a wrong argument; a call, where a block can't be captured or nothing fits the budget.
    """
    inside = list(model.modules())
    if not blocks:
        raise InputError("blocks: must be modules of the model, got none")
    for block in blocks:
        if not any(each is block for each in inside[1:]):
            raise InputError(f"blocks: must be modules inside of the model, got a {type(block).__name__} that isn't")
        if sum(each is part for each in blocks for part in block.modules()) > 1:
            raise InputError(f"blocks: none must be inside of another or come twice, got a {type(block).__name__} so")
        check_traceable(block, is_called=True)
    if following(model):
        raise InputError("model: follows plans already; gapless.torch.unplanned(model) takes that back")
    asked, report = SizeOrShare()(budget), report or say
    names = {id(module): name for name, module in model.named_modules()}
    choices, turn = Choices(options, cache, report), _Turn()
    for block in blocks:
        block.forward = _Block(block, names[id(block)], tuple(close), choices, turn)
    model.forward = PlannedBlocks(model, list(blocks), asked, choices, turn, report)
    return model


@dataclass(frozen=True)
class Shares:
    """What the blocks follow in a kind of calls: in their order, the calls, and the numbers of the plans among those
    that there are, and these. `schedule`: of all together. `slower`: by the plans' times, than where nothing is
    recomputed.
    """

    calls: list[tuple[_Block, Entry]]
    numbers: list[int]
    plans: list[BlockPlan]
    schedule: Schedule
    slower: float


class _Turn:
    """The call of the model that runs now: which blocks were called, and what they are to follow."""

    def __init__(self) -> None:
        self.calls: list[tuple[_Block, Entry]] | None = None
        self.followed: Shares | None = None
        self.is_as_before = True

    def __getstate__(self) -> dict[str, object]:
        """Copies begin anew."""
        return _Turn().__dict__

    def next(self, block: _Block, entry: Entry) -> int | None:
        """The number of the plan for a call; None for the one that keeps least."""
        if self.calls is None:  # outside of the model's forward pass
            return None
        self.calls.append((block, entry))
        if self.followed is None or not self.is_as_before:
            return None
        place, known = len(self.calls) - 1, self.followed.calls
        self.is_as_before = place < len(known) and known[place][0] is block and known[place][1] is entry
        return self.followed.numbers[place] if self.is_as_before else None


class _Block(Planned):
    """The forward pass of a block."""

    def __init__(self, model: Module, title: str, close: tuple[str, ...], choices: Choices, turn: _Turn) -> None:
        super().__init__(model, "plan", _MOST_KINDS, close, choices, _silent)
        self.title, self.module = title, model
        self._choices, self._turn = choices, turn
        self._following: dict[tuple[int, int], tuple[Entry, Entry]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Copies plan anew."""
        return {**super().__getstate__(), "_following": {}}

    def run(self, entry: Entry, leaves: list[Tensor]) -> object:
        """What the block returns, by the plan whose turn it is."""
        number = self._turn.next(self, entry)
        return super().run(entry if number is None else self._with_plan(entry, number), leaves)

    def _with_plan(self, entry: Entry, number: int) -> Entry:
        known = self._following.get((id(entry), number))
        if known is None or known[0] is not entry:
            plan = self._choices.of(entry.plan.step, "")[number].plan
            program = CallProgram(plan, named_tensors(self.module)["parameter"])
            known = self._following[id(entry), number] = entry, replace(entry, plan=plan, program=program)
        return known[1]


def _silent(_: str) -> None:
    """The model says what is planned."""


class PlannedBlocks(Follows):
    """The forward pass of a model whose blocks follow plans."""

    def __init__(
        self,
        model: Module,
        blocks: list[Module],
        budget: int | Share,
        choices: Choices,
        turn: _Turn,
        report: Callable[[str], None],
    ) -> None:
        super().__init__(model, report)
        self._blocks, self._budget, self._choices, self._turn = blocks, budget, choices, turn
        self._known: dict[tuple[object, ...], Shares] = {}

    def __getstate__(self) -> dict[str, object]:
        """Copies plan anew."""
        return {**self.__dict__, "_known": {}}

    @property
    def shares(self) -> list[Shares]:
        """For the kinds of calls that are held, in the order in which they came."""
        return list(self._known.values())

    def __call__(self, *arguments: object, **named: object) -> object:
        """What the model returns."""
        if arguments and arguments[0] is self._model:  # as `Planned` is called
            arguments = arguments[1:]
        if self.runs_without_plans():
            return self._forward(*arguments, **named)
        parts, structure = tree_flatten((arguments, named))
        key = (structure, self._model.training, autocast_now(), *map(kind_of, parts))
        turn, stays = self._turn, _what_stays(self._blocks)  # before any is gathered
        turn.calls, turn.followed, turn.is_as_before = [], self._known.get(key), True
        try:
            returned = self._forward(*arguments, **named)
            calls = turn.calls
        finally:
            turn.calls = None
        if turn.followed is None or not turn.is_as_before or len(calls) != len(turn.followed.calls):
            while len(self._known) >= _MOST_KINDS:
                del self._known[next(iter(self._known))]
            self._known[key] = self._shared_out(calls, stays)
        return returned

    def _shared_out(self, calls: list[tuple[_Block, Entry]], stays: dict[int, tuple[int, bool]]) -> Shares:
        if not calls:
            raise InputError("blocks: the model's forward pass called none of them; pass those that it calls")
        asked = self._asked(calls, stays)
        most_bytes = peak_of(asked, [0] * len(asked))
        budget = int(self._budget.ratio * most_bytes) if isinstance(self._budget, Share) else self._budget
        numbers = least_time(asked, budget)
        if numbers is None:
            least = format_bytes(least_peak(asked))
            rule = f"budget: the blocks take at least {least} by the plans that were found, got {format_bytes(budget)}"
            raise InputError(f"{rule}; give as much, or cut the model into more blocks")
        schedule = composed(asked, numbers, budget, type(self._model).__name__)
        report = check(schedule)
        if not report.valid:
            raise InputError(f"plans of blocks must replay clean together: {report.summary()}")
        plans = [call.choices[number] for call, number in zip(asked, numbers, strict=True)]
        slower = sum(each.duration_s for each in plans) / sum(call.choices[0].duration_s for call in asked) - 1
        kinds = len({id(call.choices[0].plan.schedule) for call in asked})
        held = f"at most {format_bytes(report.peak_bytes[0])} of {format_bytes(most_bytes)}"
        self._report(f"planned {len(calls)} calls of blocks, {kinds} unlike each other: {held}, {slower:.1%} slower")
        return Shares(calls, numbers, plans, schedule, slower)

    def _asked(self, calls: list[tuple[_Block, Entry]], stays: dict[int, tuple[int, bool]]) -> list[BlockCall]:
        """The calls, with the gradients that later ones leave behind."""
        asked: list[BlockCall] = []
        later: dict[int, int] = {}
        for block, entry in reversed(calls):
            size_bytes, are_sharded = stays[id(block.module)]
            others = sum(size for other, size in later.items() if other != id(block.module))
            own = 0 if id(block.module) in later else size_bytes
            asked.append(BlockCall(block.title, self._choices.of(entry.plan.step, ""), own, are_sharded, others))
            later[id(block.module)] = size_bytes
        return asked[::-1]


def _what_stays(blocks: Sequence[Module]) -> dict[int, tuple[int, bool]]:
    """By block: bytes of gradients of its parameters that stay after the backward pass, and whether that are shards."""
    found = {}
    for block in blocks:
        trained = [parameter for parameter in block.parameters() if parameter.requires_grad]
        local = [getattr(parameter, "_local_tensor", parameter) for parameter in trained]
        found[id(block)] = sum(tensor.nbytes for tensor in local), any(map(_is_shard, trained))
    return found


def _is_shard(parameter: Tensor) -> bool:
    return hasattr(parameter, "_local_tensor")
