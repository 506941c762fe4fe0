"""Where what micro-batches keep may be on hosts: stages without a link whose orders are no worse.

With copies a micro-batch may overtake another: what has left last can be used first. Stages without a link have no use
for that, so that what first in, first out bounds there holds for all orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gapless.encodings.pipeline.order.offload import kept_share
from gapless.encodings.pipeline.order.stages import Stages

__all__ = ["without_link"]


def without_link(stages: Stages, step_s: float = math.inf) -> Iterator[Stages]:
    """Stages without a link to hosts; every order with copies that ends within `step_s` is one of theirs.

    Micro-batches keep nothing from their forward to their backward; or ranks have as much more room as can be on hosts
    at once: what has left by then, and comes back from then on.
    """
    yield kept_share(stages, 0.0)
    assert stages.offload_s is not None
    kept, copy_s = stages.kept_bytes, stages.offload_s
    least_s = np.where(kept > 0, copy_s / np.maximum(kept, 1), math.inf).min()  # of a byte
    more_bytes = min(stages.host_bytes, step_s / 2 / least_s if least_s > 0 else math.inf)
    if math.isfinite(more_bytes):
        yield stages.with_room(stages.memory_bytes + more_bytes)
