"""Plans in the formats of runtimes and viewers: those of their system, and a trace that any plan can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.errors import InputError
from gapless.system import Export, find_system, known_system, system_names
from gapless.units import format_count

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["PERFETTO", "export_format"]


def export_format(plan: SavedPlan, name: str) -> Export:
    """What writes a plan in the format of this name. Raises `InputError` where its system has none such."""
    system = known_system(plan.system)
    formats = {export.name: export for export in (*(() if system is None else system.exports), PERFETTO)}
    if name not in formats:
        takers = [system for system in system_names() if name in {each.name for each in find_system(system).exports}]
        known = f"takes plans of {' or '.join(takers)}" if takers else f"must be one of {', '.join(formats)}"
        raise InputError(f"--format {name} {known}, got one of {plan.system}")
    return formats[name]


def _write_perfetto(path: str, plan: SavedPlan, values: Mapping[str, object]) -> str:
    from gapless import __version__
    from gapless.io.formats.perfetto import write_perfetto
    from gapless.plot.names import device_names

    about: dict[str, object] = {
        "gapless": __version__,
        "system": plan.system,
        "problem": plan.problem,
        "claim": plan.claim,
    }
    count = write_perfetto(path, plan.schedule, device_names(plan), about)
    return f"{format_count(count)} trace events of {format_count(len(plan.schedule))} events, for ui.perfetto.dev or chrome://tracing"


PERFETTO = Export("perfetto", "a trace for ui.perfetto.dev or chrome://tracing", _write_perfetto)
