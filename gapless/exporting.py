"""A plan in the format of a runtime or a viewer: what `gapless export` writes, and `Result.export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.system import Export, find_system, known_system, system_names

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["PERFETTO", "export_named"]


def _write_perfetto(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    from gapless import __version__
    from gapless.io.perfetto import write_perfetto
    from gapless.plot.names import device_names

    about = {"gapless": __version__, "system": plan.system, "problem": plan.problem, "claim": plan.claim}
    count = write_perfetto(path, plan.schedule, device_names(plan), about)
    return f"{count} trace events of {len(plan.schedule)} events, for ui.perfetto.dev or chrome://tracing"


PERFETTO = Export("perfetto", "a trace for ui.perfetto.dev or chrome://tracing", _write_perfetto)
"""Of plans of every system."""


def export_named(name: str, system: str) -> Export:
    """The format of this name for plans of a system. Raises `InputError` that says which plans it takes, if any."""
    known = known_system(system)
    formats = {export.name: export for export in (*(() if known is None else known.exports), PERFETTO)}
    if name in formats:
        return formats[name]
    takers = [taker for taker in system_names() if name in {each.name for each in find_system(taker).exports}]
    if takers:
        raise InputError(f"--format {name} takes plans of {' or '.join(takers)}, got one of {system}")
    raise InputError(f"format: must be one of {', '.join(formats)} for plans of {system}, got {name!r}")
