"""Which fields of a pipeline's question go together: what is refused, in a line that says what would go."""

from __future__ import annotations

import math
from itertools import pairwise

from gapless.encodings.pipeline.compression.rules import RECIPES, Recipe
from gapless.encodings.pipeline.placement.named import PLACEMENTS
from gapless.encodings.pipeline.question import BACKWARDS, CUTS, MESSAGE_MEMORIES, METHODS, OBJECTIVES, RECOMPUTATIONS
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.encodings.pipeline.step import Step
from gapless.errors import InputError
from gapless.io.record import check_known

__all__ = ["check_step"]

_MOST_OPS = 200_000
"""Forwards, backwards and weight gradients that are ordered: 64 stages of a thousand micro-batches."""


def check_step(step: Step) -> None:
    """Raise `InputError` naming the field of a step that doesn't go with the others, and what would."""
    for name, known in (("backward", BACKWARDS), ("recomputation", RECOMPUTATIONS), ("method", METHODS)):
        check_known(name, getattr(step, name), known)
    _check_placement(step)
    _check_size(step)
    if step.in_flight is not None and not math.isinf(step.memory_bytes):
        raise InputError("in_flight: goes without memory; give one of them")
    if step.error_budget and step.compression is None:
        raise InputError(
            "error_budget: needs compression, a table of measured errors; without one nothing is compressed"
        )
    if step.copies > 1 and step.compression is not None:
        rule = "goes without placement bidirectional: no errors are modelled where copies are summed"
        raise InputError(f"compression: {rule}; leave it out")
    if step.vocabulary_parts > 1 and step.compression is not None:
        raise InputError("vocabulary_parts: goes without compression, whose errors are of whole layers; leave it out")
    check_known("message_memory", step.message_memory, MESSAGE_MEMORIES)
    check_known("minimise", step.minimise, OBJECTIVES)
    _check_objective(step)
    _check_cells(step)
    _check_work(step)
    _check_slices(step)
    _check_link(step)
    _check_cut(step)
    _check_method(step)
    pairs = [(a, b) for a, b in pairwise(step.rank_of_stage.tolist()) if a != b]
    ends = enumerate(reversed(range(step.ranks))) if step.copies > 1 else ()
    step.hops.check([*pairs, *((b, a) for a, b in pairs)], ends)


def _check_placement(step: Step) -> None:
    """A name that goes with the chunks, or stages on every rank, the chunks at most."""
    if not isinstance(step.placement, str):
        counts = [step.placement.count(rank) for rank in range(step.ranks)]
        if sum(counts) != len(step.placement) or not min(counts):
            rule = f"must have a stage on each of the ranks 0 to {step.ranks - 1}, and on no other"
            raise InputError(f"placement: {rule}, got {','.join(map(str, step.placement))}")
        if max(counts) != step.chunks:
            raise InputError(f"chunks: must be {max(counts)}, the most stages of a rank, got {step.chunks}")
        return
    check_known("placement", step.placement, PLACEMENTS)
    if (step.chunks != 1) if step.placement == "linear" else (step.chunks < 2):
        rule = "must be 1 for a linear placement" if step.placement == "linear" else "must be >= 2"
        raise InputError(f"chunks: {rule}, got {step.chunks}")
    if step.placement != "bidirectional":
        return
    if step.chunks != step.copies:
        raise InputError(f"chunks: must be 2 for a bidirectional placement, a stage of each copy, got {step.chunks}")
    for name in ("ranks", "micro_batches"):
        if getattr(step, name) % 2:
            rule = "must be even for a bidirectional placement, half of them for each copy"
            raise InputError(f"{name}: {rule}, got {getattr(step, name)}")


def _check_size(step: Step) -> None:
    """Layers enough, and not more ops than can be ordered."""
    if step.stage_count > step.profile.layer_count:
        stages = f"{step.stage_count} stages" if step.stage_count > step.ranks else f"{step.ranks} ranks"
        rule = f"ranks: {stages} need as many layers, profile {step.profile.name!r} has {step.profile.layer_count}"
        raise InputError(rule)
    if step.steps > 1 and step.steps * step.stage_count * step.micro_batches * 3 > _MOST_OPS:
        most = _MOST_OPS // (3 * step.stage_count * step.micro_batches)
        rule = f"must be at most {most} for {step.stage_count} stages and {step.micro_batches} micro-batches"
        raise InputError(f"steps: {rule}, all of which are replayed, got {step.steps}; or minimise span")
    if step.stage_count * step.micro_batches * step.slices * 3 > _MOST_OPS:
        most, of = _MOST_OPS // (3 * step.stage_count * step.slices), f"{step.stage_count} stages"
        of += f" of {step.slices} slices" if step.slices > 1 else ""
        raise InputError(f"micro_batches: must be at most {most} for {of}, got {step.micro_batches}")


def _check_objective(step: Step) -> None:
    """Whether what is left out of steps that follow one another is left out."""
    if step.by_span and step.steps > 1:
        raise InputError("steps: goes without minimise span, which is of steps without end; leave one of them out")
    if not step.is_repeated:
        return
    asked = "minimise: span" if step.by_span else "steps: more than one"
    if step.compression is not None and not step.by_span:
        raise InputError("steps: more than one go without compression, whose budget is of one step; minimise span")
    if step.counts_messages and not math.isinf(step.memory_bytes):
        rule = f"must be free with {asked.replace(':', '')}, where messages of the next step come before one ends"
        raise InputError(f"message_memory: {rule}, got counted")


def _check_cells(step: Step) -> None:
    """Whether what cells leave out is left out."""
    if step.overlap_cost == 1:
        return
    is_pressed = step.counts_messages and not math.isinf(step.memory_bytes)
    left_out = {"minimise": step.by_span, "steps": step.steps > 1, "compression": step.compression is not None,
                "blocking_sends": step.blocking_sends, "recomputation": step.recomputation != "none",
                "backward auto": step.backward == "auto",
                "memory with counted messages (message_memory free has cells)": is_pressed}  # fmt: skip
    _check_alone("overlap_cost", left_out)


def _check_work(step: Step) -> None:
    """Whether each micro-batch has some, and what unequal ones leave out is left out."""
    if not step.work:
        return
    if len(step.work) != step.micro_batches:
        raise InputError(f"work: must be one for each of {step.micro_batches} micro-batches, got {len(step.work)}")
    left_out = {"minimise span": step.by_span, "steps": step.steps > 1, "overlap_cost": step.overlap_cost != 1,
                "compression": step.compression is not None,
                "placement bidirectional": step.copies > 1}  # fmt: skip
    _check_alone("work", left_out)


def _check_slices(step: Step) -> None:
    """Whether what is said of slices goes with their number, and what they leave out is left out."""
    if step.slices == 1:
        extra = next((name for name in ("attention", "slice_lengths") if getattr(step, name)), None)
        if extra is not None:
            raise InputError(f"{extra}: goes with slices, 2 or more, got slices 1")
        return
    if step.slice_lengths and len(step.slice_lengths) != step.slices:
        raise InputError(f"slice_lengths: must be one for each of {step.slices} slices, got {len(step.slice_lengths)}")
    left_out = {"minimise span": step.by_span, "steps": step.steps > 1, "overlap_cost": step.overlap_cost != 1,
                "compression": step.compression is not None, "recomputation curve": step.recomputation == "curve",
                "work": bool(step.work), "placement bidirectional": step.copies > 1}  # fmt: skip
    _check_alone("slices", left_out)


def _check_link(step: Step) -> None:
    """Whether memory is limited, and what copies to hosts leave out is left out."""
    if step.link is None:
        return
    if step.in_flight is None and math.isinf(step.memory_bytes):
        raise InputError("offload: goes with a limit of memory; give --memory or --in-flight, or leave it out")
    left_out = {"minimise span": step.by_span, "steps": step.steps > 1, "overlap_cost": step.overlap_cost != 1,
                "compression": step.compression is not None, "blocking_sends": step.blocking_sends,
                "work": bool(step.work), "slices": step.slices > 1,
                "placement bidirectional": step.copies > 1}  # fmt: skip
    _check_alone("offload", left_out)


def _check_alone(name: str, left_out: dict[str, bool]) -> None:
    """Whether nothing is there that the field leaves out."""
    wrong = next((other for other, is_there in left_out.items() if is_there), None)
    if wrong is not None:
        raise InputError(f"{name}: goes without {wrong}; leave one of them out")


def _check_cut(step: Step) -> None:
    if isinstance(step.cut, str):
        check_known("cut", step.cut, CUTS)
        return
    ends = (0, *step.cut, step.profile.layer_count)
    if len(step.cut) != step.stage_count - 1 or any(a >= b for a, b in pairwise(ends)):
        rule = f"must be {step.stage_count - 1} first layers that grow, in 1..{step.profile.layer_count - 1}"
        raise InputError(f"cut: {rule}, got {','.join(map(str, step.cut))}")


def _check_method(step: Step) -> None:
    recipe = RECIPES.get(step.method)
    if recipe is not None:
        _check_recipe(step, recipe)
    baseline = BASELINES.get(step.method if recipe is None else recipe.schedule)
    if baseline is None:
        return
    if baseline.placement != step.placement:
        raise InputError(f"method: {step.method} is for placement {baseline.placement}, got {step.placed}")
    if baseline.is_sliced != (step.slices > 1):
        rule = "needs slices, 2 or more" if baseline.is_sliced else "is for whole micro-batches"
        raise InputError(f"method: {step.method} {rule}, got slices {step.slices}")
    if baseline.splits and step.backward == "whole":
        raise InputError(f"method: {step.method} needs backward split, got whole")
    if baseline.chunks not in (None, step.chunks):
        raise InputError(f"method: {step.method} needs chunks {baseline.chunks}, got {step.chunks}")
    least = baseline.each_rank * step.ranks
    if step.micro_batches < least:
        rule = f"needs micro_batches >= {least}, {baseline.each_rank} a rank"
        raise InputError(f"method: {step.method} {rule}, got {step.micro_batches}")


def _check_recipe(step: Step, recipe: Recipe) -> None:
    """Whether there is what it compresses and fuses."""
    if recipe.compresses and not (step.compression and step.error_budget):
        missing = "compression" if step.compression is None else "error_budget"
        raise InputError(f"{missing}: method {step.method} compresses, and needs a table and a budget above 0")
    if recipe.share and step.replicas.count == 1:
        raise InputError(f"replicas: method {step.method} compresses sums among replicas, and needs two, got 1")
    if recipe.fuses_embedding and not step.profile.embedding_bytes:
        rule = f"method {step.method} fuses a shared embedding, profile {step.profile.name!r} has none"
        raise InputError(f"profile: {rule}; leave out +fe")
    if recipe.fuses_embedding != step.replicas.fuses_embedding:
        raise InputError(f"embedding: must be {recipe.embedding} for method {step.method}")
