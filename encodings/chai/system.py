"""CHAI as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.fields import Choice, Field, Number, Object, Text, Whole
from gapless.system import System, lazy, named

__all__ = ["METHODS", "SYSTEM"]

METHODS = ("exact", "uniform", "elbow", "random")
"""`uniform`: equal counts; `elbow`: the paper's rule, k-means on scores; `random`: equal counts of heads drawn."""

_DEVICES = lazy("gapless.profiles.devices:device_names")

QUESTION = (
    Field(
        "profile", Object(("gapless.profiles.heads.profile.HeadProfile",)),
        "what `gapless profile heads` writes, or synthetic:layers=32,heads=32", is_required=True, metavar="FILE",
    ),
    Field("kv_saving", Number(0, maximum=0.999), "share of the cache of keys and values that is saved, such as 0.214",
          is_required=True, metavar="S"),
    Field("distance", Choice(("output", "scores")), "what a head is charged: output (default), scores", "output"),
    Field("method", Choice(METHODS), f"exact (default), {', '.join(METHODS[1:])}", "exact", metavar="NAME"),
    Field("context", Whole(1), "tokens that are cached (default 2048)", 2048, metavar="N", group="decode step"),
    Field("batch", Whole(1, 10**6), "sequences at once (default 1)", 1, metavar="N", group="decode step"),
    Field("element_bytes", Whole(1, 8), "of a number in the cache and the weights (default 2)", 2, metavar="N",
          group="decode step"),
    Field("device", Text(), "on which it is timed (default a100)", "a100", metavar="NAME", names=_DEVICES,
          group="decode step"),
)  # fmt: skip


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Why there is no plan, where there is none."""
    if "kept" in details or not isinstance(details.get("most_saving"), float):
        return ()
    return (f"keys of one head in each layer save {details['most_saving']:.1%} of the cache: that is the most",)


SYSTEM = System(
    name="chai",
    what="which attention heads share one head's keys",
    fields=QUESTION,
    problem=lazy("gapless.encodings.chai.problem:problem"),
    plan=lazy("gapless.encodings.chai.solve:solve"),
    parameters=lambda: named("gapless.encodings.chai.parameters:Parameters"),
    example="""\
  gapless solve chai --profile synthetic:layers=32,heads=32 --kv-saving 0.214 -o plan.json
  gapless solve chai --profile heads.npz --kv-saving 0.3 --distance scores -o plan.json
""",
    summary=("method", "kv_saving", "kept_heads", "cache_bytes", "full_step_s"),
    remarks=_remarks,
    lighter="fewer layers",
    view=lazy("gapless.encodings.chai.view:render"),
    pictures=("front", "heads", "gantt"),
    drawers={
        "front": lazy("gapless.encodings.chai.pictures:draw_front"),
        "heads": lazy("gapless.encodings.chai.pictures:draw_heads"),
    },
    device_names=lambda plan: (plan.schedule.topology.name,),
    package="gapless.encodings.chai",
)
