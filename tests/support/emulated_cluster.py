"""The mark of tests that need an emulated cluster (root, Linux), and what they use of `gapless.emulation`."""

from __future__ import annotations

import pytest

from gapless.emulation import Cluster, Ended, Running, emulated_cluster, why_no_cluster
from gapless.emulation.namespaces import namespaces, pids, remove_left_over

__all__ = [
    "Cluster", "Ended", "Running", "emulated_cluster", "namespaces", "needs_cluster", "pids", "remove_left_over",
]  # fmt: skip

_REASON = why_no_cluster()
needs_cluster = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")
