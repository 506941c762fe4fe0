"""The folder: plans, table, selector and topology, and what MSCCL and MSCCL++ choose from; whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from gapless.encodings.taccl.programs.export import write_mscclpp, write_taccl_ef
from gapless.encodings.taccl.tuning.outcome import Outcome, text_of
from gapless.errors import GaplessError, InputError
from gapless.io.atomic import new_folder
from gapless.io.formats.tuned_file import SELECTOR, TABLE, Served, selector_text, table_text
from gapless.io.plan import SavedPlan, read_plan

__all__ = ["check_folder", "write_outcome"]

_TOPOLOGY, _TEXT = "topology.json", "table.txt"


def check_folder(path: str) -> None:
    """Raise `InputError` where the folder can't be written, or holds what `gapless tune` hasn't."""
    where = Path(path)
    if not where.parent.is_dir():
        raise InputError(f"output: there is no folder {where.parent}; choose another path, got {path!r}")
    if where.exists() and not (where.is_dir() and ((where / SELECTOR).is_file() or not any(where.iterdir()))):
        raise InputError(f"output: must be a new folder, or one of `gapless tune`, got {path!r}")


def write_outcome(path: str, outcome: Outcome, topology: str) -> list[str]:
    """Write all of it; what an earlier run left in the folder is gone then.

    `topology`: the text of its file, empty where it wasn't measured. Returns a line for each plan that MSCCL or MSCCL++
    can't have.
    """
    refused: list[str] = []
    with new_folder(path) as folder:
        (folder / "plans").mkdir()
        for file, text in outcome.plans.items():
            (folder / file).write_text(text, "utf-8")
        if topology:
            (folder / _TOPOLOGY).write_text(topology, "utf-8")
        (folder / TABLE).write_text(table_text(outcome.table), "utf-8")
        (folder / _TEXT).write_text(text_of(outcome.table) + "\n", "utf-8")
        (folder / SELECTOR).write_text(selector_text(outcome.selector), "utf-8")
        plans = [read_plan(folder / plan.file) for plan in outcome.selector.plans]
        for runtime, ending, write in (("msccl", "xml", _msccl), ("mscclpp", "json", _mscclpp)):
            refused += _exported(folder / runtime, ending, outcome, plans, write)
    return refused


def _exported(
    folder: Path, ending: str, outcome: Outcome, plans: list[SavedPlan],
    write: Callable[[Path, SavedPlan, Served], None],
) -> list[str]:  # fmt: skip
    """A file for each range of sizes, and a list of them; why there is none for others."""
    rows, refused = list[dict[str, object]](), list[str]()
    folder.mkdir()
    for number, one in enumerate(outcome.selector.ranges):
        larger, file = _of_larger_buffer(one), f"{one.collective}-{number}.{ending}"
        try:
            write(folder / file, plans[one.plan], larger)
        except GaplessError as error:
            refused.append(f"{folder.name}: no file for plan {one.plan} of {one.collective}: {error}")
            continue
        rows.append({
            "file": file, "collective": one.collective, "ranks": list(one.ranks), "min_bytes": larger.min_bytes,
            "max_bytes": larger.max_bytes,
        })  # fmt: skip
    (folder / "files.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return list(dict.fromkeys(refused))


def _of_larger_buffer(one: Served) -> Served:
    """The range by the larger of a rank's two buffers, as the runtimes compare it."""
    factor = len(one.ranks) if one.collective == "allgather" else 1
    return Served(one.collective, one.ranks, one.min_bytes * factor, one.max_bytes * factor, one.plan)


def _msccl(path: Path, plan: SavedPlan, served: Served) -> None:
    write_taccl_ef(path, plan.schedule, plan.problem, min_bytes=served.min_bytes, max_bytes=served.max_bytes)


def _mscclpp(path: Path, plan: SavedPlan, served: Served) -> None:
    write_mscclpp(path, plan.schedule, plan.problem, min_bytes=served.min_bytes, max_bytes=served.max_bytes)
