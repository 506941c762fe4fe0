"""Plans as the contest wants them: a list with the choice of each node."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gapless.encodings.sharding.decision import ShardingDecision
from gapless.io.atomic import write_lines
from gapless.io.plan import SavedPlan

__all__ = ["write_iopddl"]


def write_iopddl(path: str, plan: SavedPlan, values: Mapping[str, object]) -> str:
    """Write `[0, 3, ...]`."""
    choices = ShardingDecision.of(plan).choices
    write_lines(path, [json.dumps(list(choices)) + "\n"])
    return f"choices of {len(choices)} nodes"
