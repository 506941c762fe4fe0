"""TACCL as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.encodings.taccl import candidate, parameters, problem, solve
from gapless.encodings.taccl.baselines import gloo
from gapless.encodings.taccl.commands import LINKS, RUN, STEP, SWEEP, TUNE
from gapless.encodings.taccl.programs import export
from gapless.encodings.taccl.question import Question
from gapless.encodings.taccl.sweep import picture
from gapless.io.formats.ef_options import LOWERING
from gapless.lazy import lazy
from gapless.options import SolveOptions
from gapless.system import Export, System

__all__ = ["SYSTEM"]


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The sketches that were tried, the best first; or how long it takes at least until there is a plan."""
    from gapless.report.text import described, table

    if "least_time_limit_s" in details:
        return (f"so many sends take about {details['least_time_limit_s']} s at least: give a larger --time-limit",)
    if "repair" in details:
        return _slower(**details["repair"])
    columns = ("sketch", "status", "makespan_s", "bound_s")
    rows = [[described(name, row[name]) for name in columns] for row in details.get("sketches", ())]
    return tuple(table([["sketch", "status", "makespan", "bound"], *rows]).splitlines()) if rows else ()


def _slower(before_s: float | None, end_s: float, bound_s: float) -> tuple[str, ...]:
    """How much slower than before the failure the collective is, and how much it has to be at least."""
    from gapless.units import format_seconds

    now = f"no plan on what is left takes less than {format_seconds(bound_s)}"
    if not before_s:
        return (now,)
    slower = f"before the failure {format_seconds(before_s)}, now {format_seconds(end_s)}: {end_s / before_s:.3f} times"
    return (f"{slower} as long; {now}, {bound_s / before_s:.3f} times",)


def _sketches() -> list[dict[str, Any]]:
    """What TACCL may use of a machine, for --sketch."""
    from gapless.encodings.taccl.sketch.format import load_sketch, sketch_names
    from gapless.units import format_bytes

    rows = []
    for name in sketch_names():
        sketch = load_sketch(name)
        rows.append({
            "name": name,
            "switches": ", ".join(sketch.policies) or "-",
            "chunks per rank": sketch.chunks_per_rank,
            "size": "-" if sketch.input_bytes is None else format_bytes(sketch.input_bytes),
            "symmetry": ", ".join(f"[{offset}, {group or 'all'}]" for offset, group in sketch.symmetry) or "-",
        })  # fmt: skip
    return rows


def _trial() -> tuple[Any, SolveOptions]:
    return problem.problem("ndv2", size=1_000_000), SolveOptions(gap=0.05)


SYSTEM = System(
    name="taccl",
    what="synthesise a collective for a topology under a sketch",
    question=Question,
    problem=lazy(lambda: problem.problem_of),
    plan=lazy(lambda: solve.solve),
    parameters=lambda: parameters.Parameters,
    example="""\
  gapless solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB \\
      -o plan.json --xml allgather.xml --instances 8
  gapless solve taccl --topology dgx1 --size 1MB -o plan.json
""",
    notes="""\
SIZE is the largest input buffer of a rank: what it sends to all (alltoall, scatter's root), what it adds (allreduce,
reducescatter, reduce), or its own data (the others). The sketch's input_chunkup cuts the part that is for one rank, or
comes from one: 16 ranks and input_chunkup 2 make 32 chunks of an alltoall's, reducescatter's or allreduce's buffer.
""",
    summary=("ratio", "sends", "method", "switches"),
    lighter="--threads 1, fewer --chunks, or fewer ranks",
    remarks=_remarks,
    headline=("{collective} of {input_bytes} on {topology}", "sketch {sketch}", "in {chunks} chunks"),
    pictures=("gantt", "topology", "resources"),
    tables={"gapless.size-sweep": lazy(lambda: picture.draw_sizes)},
    model=lazy(lambda: solve.model_of),
    exports=(
        Export(
            "taccl-ef", "TACCL-EF XML", lambda path, plan, values: export.export_taccl_ef(path, plan, **values),
            LOWERING, beside="xml",
        ),
        Export(
            "mscclpp", "an execution plan for MSCCL++",
            lambda path, plan, values: export.export_mscclpp(path, plan, **values), LOWERING,
        ),
        Export(
            "chakra", "Chakra traces for ASTRA-sim, FILE.0.et and so on by rank",
            lambda path, plan, values: export.export_chakra(path, plan),
        ),
    ),
    listings={"sketches": _sketches},
    advice=(STEP,),
    sweeps=(SWEEP,),
    runs=(RUN,),
    profiles=(LINKS,),
    commands=(TUNE,),
    narrowing=lazy(lambda: solve.narrowing),
    challenges=lazy(lambda: solve.challenges),
    decision=lambda: candidate.CollectiveDecision,
    package="gapless.encodings.taccl",
    faster_library=lazy(lambda: gloo.faster_library),
    trial=_trial,
)  # fmt: skip
