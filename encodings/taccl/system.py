"""TACCL as the rest of gapless sees it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapless.encodings.taccl.fields import QUESTION, SWEEP
from gapless.errors import InputError
from gapless.io.taccl_ef.options import LOWERING
from gapless.options import SolveOptions
from gapless.system import Answer, Command, Export, Plan, Session, System

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan
    from gapless.model import Model

__all__ = ["SYSTEM"]


def _problem(**values: Any) -> Any:
    from gapless.encodings.taccl.question import problem

    return problem(**values)


def _plan(problem: Any, options: SolveOptions, parameters: Any) -> Plan:
    from gapless.encodings.taccl.solve import solve

    return solve(problem, options, parameters)


def _parameters() -> type:
    from gapless.encodings.taccl.parameters import Parameters

    return Parameters


def _model(problem: Any) -> Model:
    from gapless.encodings.taccl.milp.routers import routing_model
    from gapless.encodings.taccl.solve import in_chunks

    return routing_model(in_chunks(problem, problem.default_options))


def _remarks(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The sketches that were tried, the best first."""
    from gapless.text import described, table

    columns = ("sketch", "status", "makespan_s", "bound_s")
    rows = [[described(name, row[name]) for name in columns] for row in details.get("sketches", ())]
    return tuple(table([["sketch", "status", "makespan", "bound"], *rows]).splitlines()) if rows else ()


def _sketches() -> list[dict[str, Any]]:
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


def _write_taccl_ef(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    from gapless.encodings.taccl.programs.export import write_taccl_ef

    program = write_taccl_ef(path, plan.schedule, plan.problem, **values)
    blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
    size = f"{program.ngpus} GPUs, {program.nchannels} channels, at most {blocks} thread blocks a GPU"
    return f"{program.coll} on {size}"


def _write_mscclpp(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    from gapless.encodings.taccl.programs.export import write_mscclpp

    if values["proto"] != "Simple":
        raise InputError(f"proto: MSCCL++ plans are written with Simple, got {values['proto']}")
    how = {key: values[key] for key in ("instances", "min_bytes", "max_bytes", "sm_count")}
    # A plan serves one placement; the default of TACCL-EF, both, is taken as the one that is always right to call.
    placement = "in-place" if values["placement"] == "in-place" else "out-of-place"
    written = write_mscclpp(path, plan.schedule, plan.problem, placement=placement, **how)
    blocks = max(len(gpu.threadblocks) for gpu in written.gpus)
    return f"{written.collective} on {len(written.gpus)} GPUs {placement}, at most {blocks} thread blocks a GPU"


def _write_chakra(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    from gapless.io.chakra import write_traces

    traces = write_traces(path, plan.schedule)
    count = sum(len(nodes) for nodes in traces)
    return f"{count} sends and receives in {len(traces)} files, {path}.RANK.et"


def _sweep(values: Mapping[str, Any], session: Session) -> Answer:
    from gapless.encodings.taccl.sweep.command import answer

    return answer(values, session)


def _trial() -> tuple[Any, SolveOptions]:
    return _problem(topology="ndv2", size=1_000_000), SolveOptions(gap=0.05)


_SWEEP_HELP = """\
A size is that of the larger of one rank's two buffers, as the runtimes compare it with minBytes and maxBytes. Every
size gets a plan of its own and an even share of the time limit; then every plan is tried at every size, with every
number of instances and in pieces, beside ring, tree, doubling, direct and hierarchical algorithms, and the fastest
serves the size. The folder gets xml/ with one program for each range of sizes, the plans, and the table as summary.csv
and summary.json. The same command again goes on with the sizes that have no plan yet, or would get more time now.
Ctrl-C ends the synthesis and chooses from what is there.

exit codes: 0 every size has its plan and is served, 2 bad input, 4 some have no plan yet or nothing can be lowered

example:
  gapless sweep taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather \\
      --min-size 1KB --max-size 1GB --factor 4 --time-limit 120 -o allgather
"""

SYSTEM = System(
    name="taccl",
    what="synthesise a collective for a topology under a sketch",
    fields=QUESTION,
    problem=_problem,
    plan=_plan,
    parameters=_parameters,
    example="""\
  gapless solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB \\
      -o plan.json --xml allgather.xml --instances 8
  gapless solve taccl --topology dgx2 --nodes 2 --sketch auto --size 1MB --time-limit 60 -o plan.json
""",
    notes="""\
SIZE is the largest input buffer of a rank: what it sends to all (alltoall, scatter's root), what it adds (allreduce,
reducescatter, reduce), or its own data (the others). The sketch's input_chunkup cuts the part that is for one rank, or
comes from one: 16 ranks and input_chunkup 2 make 32 chunks of an alltoall's, reducescatter's or allreduce's buffer.
""",
    summary=("ratio", "sends", "method"),
    remarks=_remarks,
    pictures=("gantt", "topology", "resources"),
    model=_model,
    exports=(
        Export("taccl-ef", "TACCL-EF XML", _write_taccl_ef, LOWERING, beside="xml"),
        Export("mscclpp", "an execution plan for MSCCL++", _write_mscclpp, LOWERING),
        Export("chakra", "Chakra traces for ASTRA-sim, FILE.0.et and so on by rank", _write_chakra),
    ),
    listings={"sketches": _sketches},
    sweeps=(
        Command(
            "taccl", "one collective for a range of sizes: a program for each, beside the usual algorithms", SWEEP,
            _sweep, _SWEEP_HELP, SolveOptions(time_limit_s=600.0, gap=0.05),
            "choosing from the plans so far; the same command goes on",
        ),
    ),
    schemas="gapless.encodings.taccl.schemas",
    citation=lambda: (files("gapless.encodings.taccl") / "references.bib").read_text(encoding="utf-8"),
    trial=_trial,
)  # fmt: skip
