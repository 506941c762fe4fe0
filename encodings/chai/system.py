"""CHAI as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.encodings.chai import head_map, parameters, problem, solve, view
from gapless.encodings.chai.commands import options
from gapless.encodings.chai.question import Question
from gapless.lazy import lazy
from gapless.system import System

__all__ = ["SYSTEM"]

_SWAPS_HELP = """\
--swaps lowers the loss of the model on a text, by exchanging kept heads one for one; the error may rise. It needs the
extra `hf`.
"""


def _remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """Why there is no plan, where there is none; what swaps have gained."""
    swaps, most = details.get("swaps"), details.get("most_saving")
    if "kept" not in details and isinstance(most, float):
        return (f"keys of one head in each layer save {most:.1%} of the cache: that is the most",)
    if isinstance(swaps, Mapping) and {"loss_before", "loss_after", "made", "tried"} <= set(swaps):
        change = f"loss {swaps['loss_before']:.4f} -> {swaps['loss_after']:.4f}"
        return (f"swaps: {change}; {swaps['made']} of {swaps['tried']} that were tried were made",)
    return ()


SYSTEM = System(
    name="chai",
    what="which attention heads share one head's keys",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve chai --profile synthetic:layers=32,heads=32 --kv-saving 0.214 -o plan.json
  gapless solve chai --profile heads.npz --kv-saving 0.3 --distance scores -o plan.json
""",
    notes=_SWAPS_HELP,
    summary=("method", "saved", "kept_heads", "used_heads", "cache_bytes", "full_step_s"),
    remarks=_remarks,
    lighter="fewer layers",
    view=lazy(lambda: view.render),
    headline=("{profile}: heads that share attention", "saving {kv_saving} of the cache"),
    pictures=("front", "heads", "gantt"),
    drawers={"front": lazy(lambda: view.draw_front), "heads": lazy(lambda: view.draw_heads)},
    device_names=lambda plan: (plan.schedule.topology.name,),
    runs=options.RUNS,
    profiles=(options.PROFILE,),
    pinned=lazy(lambda: solve.pinned),
    cost=lazy(lambda: solve.cost),
    decision=lambda: head_map.HeadDecision,
    package="gapless.encodings.chai",
)
