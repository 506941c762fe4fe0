"""What is trained beside a plan: its own modes, and the rules of Optimus-CC on its order, by name: `cb+fe+sc75`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from gapless.encodings.pipeline.compression.rules import RECIPES, Recipe
from gapless.encodings.pipeline.programs.program import Program
from gapless.encodings.pipeline.question import RunQuestion
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import ActionOrder

if TYPE_CHECKING:
    from gapless.torch.pipeline.training import Variant

__all__ = ["epilogue_hops", "variants_of"]

_SCHEDULE = "1f1b"
"""Any of a recipe's: the order is the plan's."""
_EXTRA = ("forward", "lep", "no-lep")
_PLAIN = "plain"


def epilogue_hops(order: ActionOrder) -> set[tuple[int, int]]:
    """Hops and micro-batches whose gradients arrive when their receiver has no forward left."""
    found = set[tuple[int, int]]()
    for rank in range(order.ranks):
        actions = order.of_rank(rank)
        last = max(k for k, each in enumerate(actions) if each.kind == "F")
        found |= {(each.stage, each.micro_batch) for each in actions[last + 1 :] if each.kind in "IB"}
    return {each for each in found if each in set(_hops(order))}


def _hops(order: ActionOrder) -> Iterator[tuple[int, int]]:
    """All hops between ranks, each with every micro-batch."""
    ranks = order.rank_of_stage
    for hop in range(len(ranks) - 1):
        if ranks[hop] != ranks[hop + 1]:
            yield from ((hop, m) for m in range(order.micro_batches))


def variants_of(question: RunQuestion, program: Program, replicas: int, fuses_embedding: bool) -> list[Variant]:
    """What is trained: plain, in the plan's modes with and without error propagation, and by each rule in each mode.

    Raises `InputError` for an unknown rule, and one that has nothing to compress.
    """
    from gapless.torch.pipeline.training import Variant

    sums = program.sum_modes if replicas > 1 else ()
    hops = tuple((hop, m, mode) for (hop, m), mode in sorted(program.hop_modes.items()))
    found = [Variant("plain", fuses_embedding=fuses_embedding)]
    if hops or any(mode != _PLAIN for mode in sums):
        found.append(Variant("plan", hops, sums, fuses_embedding=fuses_embedding))
    if hops:
        found.append(Variant("plan, errors propagated", hops, sums, propagates=True, fuses_embedding=fuses_embedding))
    for name in question.rules or ():
        recipe, extra = _rule(name)
        hop_modes = question.hop_mode if recipe.hops != "none" or "forward" in extra else ("",)
        sum_modes = question.sum_mode if recipe.share else ("",)
        if recipe.share and replicas == 1:
            raise InputError(f"rules: {name} compresses sums among replicas, the plan has one; solve with --replicas 2")
        for hop_mode, sum_mode in product(hop_modes, sum_modes):
            modes = [mode for mode, many in ((hop_mode, question.hop_mode), (sum_mode, question.sum_mode))
                     if mode and len(many) > 1]  # fmt: skip
            found.append(
                _variant(" ".join([name, *modes]), recipe, extra, hop_mode, sum_mode, program.order, fuses_embedding)
            )
    return found


def _rule(name: str) -> tuple[Recipe, set[str]]:
    """What a rule compresses, and what is said besides."""
    parts = name.split("+")
    extra = {part for part in parts if part in _EXTRA}
    rest = "".join(f"+{part}" for part in parts if part not in _EXTRA)
    recipe = RECIPES.get(_SCHEDULE + rest) if rest else Recipe(_SCHEDULE)
    if recipe is None or (not rest and "forward" not in extra):
        known = "cb or naive-cb, fe, sc25, sc50, sc75 or dp, forward, lep or no-lep"
        raise InputError(f"rules: each must be some of {known}, in this order with + between them, got {name!r}")
    return recipe, extra


def _variant(
    name: str, recipe: Recipe, extra: set[str], hop_mode: str, sum_mode: str, order: ActionOrder, fuses_embedding: bool
) -> Variant:
    from gapless.torch.pipeline.training import Variant

    hops = {"none": set(), "epilogue": epilogue_hops(order), "all": set(_hops(order))}[recipe.hops]
    compressed = round(recipe.share * order.ranks)
    return Variant(
        name,
        tuple((hop, m, hop_mode) for hop, m in sorted(hops)),
        tuple(sum_mode if rank < compressed else _PLAIN for rank in order.rank_of_stage) if compressed else (),
        propagates="lep" in extra or (recipe.hops == "epilogue" and "no-lep" not in extra),
        forward_mode=hop_mode if "forward" in extra else "",
        fuses_embedding=fuses_embedding or recipe.fuses_embedding,
    )
