"""`gapless sweep taccl`: the sweep as people ask for it, and what they see of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import find_topology
from gapless.encodings.taccl.programs.instances import InstanceCosts
from gapless.encodings.taccl.question import AUTO
from gapless.encodings.taccl.sketch.format import Sketch, load_sketch, read_sketch
from gapless.encodings.taccl.sweep.request import Choice, Request, sizes_between
from gapless.encodings.taccl.sweep.run import Outcome, sweep
from gapless.errors import InputError
from gapless.question.parameters import parameters_of
from gapless.report.text import described, table
from gapless.sweeps.summary import table_files
from gapless.system import Answer, Session

__all__ = ["answer", "request"]

_COLUMNS = {
    "size_bytes": "size", "plan": "plan", "sketch": "sketch", "instances": "x", "makespan_s": "time",
    "algbw_bytes_per_s": "algbw", "ratio_to_bound": "/ bound", "ratio_to_baseline": "/ baseline",
    "synthesised_ratio": "synthesised /", "baseline": "best baseline", "baseline_s": "its time", "solve_s": "solved in",
}  # fmt: skip


def request(values: Mapping[str, Any]) -> Request:
    """What is asked for, from the values of the fields. Raises `InputError` as `problem` does."""
    sketches = _sketches(values["sketch"] or (), values["sketch_file"])
    named = [sketch for sketch in sketches if isinstance(sketch, Sketch) and sketch.node_count is not None]
    sizes = values["sizes"] or sizes_between(values["min_size"], values["max_size"], values["factor"])
    return Request(
        topology=find_topology(
            values["topology"], values["topology_file"], values["nodes"], named[0] if named else None
        ),
        collective=values["collective"] or "allgather",
        sizes_bytes=sizes,
        instances=values["instances"],
        parts=values["parts"],
        sketches=sketches,
        costs=InstanceCosts(values["block_bandwidth"], values["alpha_growth"]),
        lowering={key: values[key] for key in ("proto", "placement", "runtime")},
        tolerance=values["tolerance"],
    )


def _sketches(sketches: Sequence[str | Sketch], sketch_file: str | None) -> tuple[Choice, ...]:
    """Those that are named or given, and that in a file; none where there is none of these."""
    found: list[Choice] = []
    for sketch in sketches:
        found.append(AUTO if sketch == AUTO else load_sketch(sketch) if isinstance(sketch, str) else sketch)
    if sketch_file is not None:
        found.append(read_sketch(sketch_file))
    names = [sketch.name if isinstance(sketch, Sketch) else sketch for sketch in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"sketch: must name each sketch once, got {name!r} {names.count(name)} times")
    return tuple(found) or (None,)


def answer(values: Mapping[str, Any], session: Session) -> Answer:
    """Sweep, and what came of it as data and as tables."""
    asked = replace(request(values), parameters=parameters_of(Parameters, session.parameters))
    folder = Path(values["output"])
    outcome = sweep(asked, session.options, folder)
    data = {
        "problem": "taccl", "collective": asked.collective, **table_files(folder), "complete": outcome.is_complete,
        "ranges": outcome.ranges, "refused": outcome.refused, "rows": [row.data for row in outcome.rows],
    }  # fmt: skip
    return Answer(data, _text(outcome), _notes(outcome), outcome.is_complete)


def _text(outcome: Outcome) -> str:
    rows = [[described(name, row.data[name]) for name in _COLUMNS] for row in outcome.rows]
    printed = table([list(_COLUMNS.values()), *rows])
    if not outcome.ranges:
        return printed
    heads = ["min_bytes", "max_bytes", "instances", "xml"]
    return f"{printed}\n\n{table([heads, *([str(entry[name]) for name in heads] for entry in outcome.ranges)])}"


def _notes(outcome: Outcome) -> tuple[str, ...]:
    """What is missing, if anything is."""
    if outcome.is_complete:
        return ()
    if not outcome.ranges and outcome.refused:
        first = outcome.refused[0]
        return (f"nothing could be lowered; {first['plan']}: {first['reason']}",)
    solved = sum(row.solve_s is not None for row in outcome.rows)
    return (f"{solved} of {len(outcome.rows)} sizes have a plan of their own",)
