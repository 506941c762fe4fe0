"""Why a search that could go on has stopped."""

from __future__ import annotations

from gapless import SolveOptions, StopReason
from gapless.encodings.monet.attempt import stopped


def test_a_search_that_nobody_stopped_was_out_of_time() -> None:
    options = SolveOptions()
    assert stopped(options) is StopReason.TIME_LIMIT
    options.stop.set()
    assert stopped(options) is StopReason.INTERRUPTED
