"""Budgets as policies of selective checkpointing: which operators of a block are saved, and which run again.

::

    policy = gapless.torch.policy(model, (images,), cross_entropy, targets=(labels,), budget="0.6x")
    policy.apply(model)                                          # or block by block, by policy.context_fn(name)

A block that is checkpointed runs again as a whole, when its gradient begins; what was saved is taken from there. So a
policy can't say when what is computed again, nor twice, and its best is found for what it can say. Needs the extra
`torch`.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gapless.errors import InputError
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.question.fields import Share, SizeOrShare
from gapless.solution import Status
from gapless.solvers.proofs import solve_proven
from gapless.torch.compiler.partition import plan_for
from gapless.torch.compiler.recording import Ran, Recording, recorded
from gapless.torch.compiler.replayed import Replay, replayed
from gapless.torch.library import Argument, Loss, Module, torch
from gapless.torch.run.comparison import blocks_of
from gapless.torch.run.events import recomputed_share
from gapless.torch.run.workload import Workload
from gapless.units import format_bytes, format_count

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

__all__ = ["Policy", "policy"]

_Contexts: TypeAlias = tuple[AbstractContextManager[object], AbstractContextManager[object]]
_ROUNDS = 8
"""So often at most is the budget of the choice lowered by what its replay is above."""


@dataclass(frozen=True)
class Policy:
    """What is saved in each block that is checkpointed, by the name of the block: (operator, how many of it came
    before in the block). `plain`: blocks that aren't checkpointed. `replay`: of a step under it."""

    saved: Mapping[str, frozenset[tuple[str, int]]]
    plain: frozenset[str]
    replay: Replay = field(repr=False)

    def context_fn(self, block: str) -> Callable[[], _Contexts]:
        """For `torch.utils.checkpoint.checkpoint(..., use_reentrant=False, context_fn=...)` around this block.

        Raises `InputError` for a block that isn't checkpointed.
        """
        if block not in self.saved:
            raise InputError(f"policy: block must be one of {', '.join(self.saved) or 'none'}, got {block!r}")
        return functools.partial(_contexts, self.saved[block])

    def apply(self, model: Module) -> Module:
        """Checkpoint the blocks of a model, which comes back. Its parameters keep their names."""
        from torch.utils.checkpoint import checkpoint

        for name in self.saved:
            block = model.get_submodule(name)
            block.forward = functools.partial(
                checkpoint, block.forward, use_reentrant=False, context_fn=self.context_fn(name)
            )
        return model


def policy(
    model: Module,
    example_inputs: Sequence[object] | Mapping[str, object],
    loss: Loss | None = None,
    *,
    targets: Sequence[object] = (),
    budget: str | int,
    blocks: Sequence[str] | None = None,
    beside: bool = True,
    options: SolveOptions | None = None,
    report: Callable[[str], None] | None = None,
) -> Policy:
    """The policy that computes least again, within a budget. A few steps of eager's are run for it.

    `example_inputs`, `loss`, `targets`: as for `capture`. `budget`: bytes above parameters, buffers and inputs, or a
    share of eager's peak. `blocks`: names of modules to checkpoint; by default the members of the outermost lists of
    modules. `beside`: whether a plan of all freedoms is solved for as well, by `options`, to say what a policy loses.
    `report`: is called with a line on each; by default it goes to stderr.

    Raises `InputError` where there are no blocks, or nothing fits.
    """
    given = example_inputs if isinstance(example_inputs, Mapping) else tuple(example_inputs)
    work = Workload(model, given, loss, tuple(targets))
    own = blocks_of(torch.nn.Sequential(model)) if blocks is None else [model.get_submodule(name) for name in blocks]
    chosen = set(map(id, own))
    named = {name: module for name, module in model.named_modules() if id(module) in chosen}
    if not named:
        raise InputError("policy: the model has no list of blocks; name modules to checkpoint by blocks=[...]")
    recording = recorded(model, named, lambda: work.loss_of(model))
    found = _chosen(recording, tuple(named), _budget_bytes(budget, recording))
    say = report or (lambda text: print(f"gapless: {text}", file=sys.stderr))
    replay = found.replay
    say(f"a policy: at most {format_bytes(replay.peak_bytes)}, computes {replay.again_s / replay.forward_s:.1%} again")
    if beside:
        say(_full(work, found, options))
    return found


def _budget_bytes(budget: str | int, recording: Recording) -> int:
    asked = SizeOrShare()(budget)
    return max(int(asked.ratio * recording.peak_bytes), 1) if isinstance(asked, Share) else asked


def _full(work: Workload, found: Policy, options: SolveOptions | None) -> str:
    """What a plan of all freedoms takes at the policy's peak."""
    from gapless.torch.capture.graph import capture
    from gapless.torch.capture.timing import profile

    step = profile(capture(work.model, work.inputs, work.loss, targets=work.targets))
    try:
        plan = plan_for(step, found.replay.peak_bytes, options or SolveOptions(time_limit_s=30.0, gap=0.02))
    except InputError as error:
        return f"a full plan: {error}"
    return f"a full plan: at most {format_bytes(plan.peak_bytes)}, computes {recomputed_share(plan):.1%} again"


def _contexts(saved: frozenset[tuple[str, int]]) -> _Contexts:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    counts = Counter[tuple[bool, str]]()

    def decide(
        context: SelectiveCheckpointContext, op: OpOverload, *arguments: Argument, **options: Argument
    ) -> CheckpointPolicy:
        key = context.is_recompute, str(op)
        counts[key] += 1
        is_saved = (str(op), counts[key] - 1) in saved
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    contexts: _Contexts = create_selective_checkpoint_contexts(decide)
    return contexts


# -- the choice --------------------------------------------------------------------------------------------------------


def _chosen(recording: Recording, names: tuple[str, ...], budget_bytes: int) -> Policy:
    """The best that fits, by its replay."""
    nothing = {name: frozenset[tuple[str, int]]() for name in names}
    least = replayed(recording, nothing, budget_bytes)
    limit_bytes = budget_bytes
    for _ in range(_ROUNDS):
        saved = _saved(recording, names, least, limit_bytes) if least.peak_bytes <= budget_bytes else None
        if saved is None:
            break
        replay = replayed(recording, saved, budget_bytes)
        if replay.peak_bytes <= budget_bytes:
            return Policy(saved, frozenset(names) - set(saved), replay)
        limit_bytes -= replay.peak_bytes - budget_bytes
    if least.peak_bytes <= budget_bytes:
        return Policy(nothing, frozenset(), least)
    raise InputError(
        f"no policy: when all blocks are computed again, a step takes {format_count(least.peak_bytes)} bytes "
        f"({format_bytes(least.peak_bytes)}), more than the budget; smaller blocks may need less"
    )


def _saved(
    recording: Recording, names: tuple[str, ...], least: Replay, limit_bytes: int
) -> dict[str, frozenset[tuple[str, int]]] | None:
    """What to save so that least time is spent again, while each block's gradient is computed within a limit.

    From the replay in which all is computed again: in the window of a block's gradient, what earlier blocks save comes
    on top, unless it is there anyway. A block that isn't checkpointed keeps what its gradient reads.
    """
    changed = {piece for ran in recording.forward if ran.writes for piece in ran.reads}
    read = {piece for ran in recording.backward for piece in ran.reads}
    model = Model("what blocks save")
    columns: list[tuple[str, Ran | None, tuple[int, ...], float]] = []
    for name in names:
        ran = [ran for ran in recording.forward if ran.block == name]
        again = ran[: recording.stops[name]]
        made = tuple(piece for one in ran for piece in one.makes)
        whole_s = sum(one.duration_s for one in again)
        columns.append((name, None, tuple(piece for piece in made if piece in read), whole_s))
        columns += [
            (name, one, one.makes, one.duration_s)
            for one in again
            if one.makes and not (one.writes or one.is_random or changed.intersection(one.makes))
        ]
    ids = model.binaries("saved", len(columns))
    whole = {name: ids[place] for place, (name, one, *_) in enumerate(columns) if one is None}
    within = [place for place, (_, one, *_) in enumerate(columns) if one is not None]
    if within:
        blocks = np.array([whole[columns[place][0]] for place in within])
        model.add("blocks_are_checkpointed_or_not", (1.0, ids[within][:, None]), (1.0, blocks[:, None]), upper=1.0)
    order = {name: number for number, name in enumerate(names)}
    weights = np.array(
        [
            [
                sum(recording.size_bytes[piece] for piece in pieces if piece not in window.there)
                if order[name] < order.get(window.block, len(names))
                else 0
                for name, _, pieces, _ in columns
            ]
            for window in least.windows
        ]
    )
    room = np.array([limit_bytes - window.peak_bytes for window in least.windows])
    model.add("windows_fit", (weights / limit_bytes, np.broadcast_to(ids, weights.shape)), upper=room / limit_bytes)
    total_s = sum(column[-1] for column in columns) or 1.0
    model.minimize((np.array([-column[-1] / total_s for column in columns]), ids))
    solution = solve_proven(model, SolveOptions(time_limit_s=10.0, threads=1))
    if solution.values is None or solution.status not in (Status.OPTIMAL, Status.FEASIBLE):
        return None
    taken = np.asarray(solution.values)[ids] > 0.5
    saved = {name: set[tuple[str, int]]() for name in names if np.asarray(solution.values)[whole[name]] < 0.5}
    for (name, one, *_), is_taken in zip(columns, taken, strict=True):
        if one is not None and is_taken:
            saved[name].add((one.name, one.number))
    return {name: frozenset(kept) for name, kept in saved.items()}
