"""What tests of commands share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gapless.cli import signals


@pytest.fixture
def heard() -> Iterator[None]:
    """Signals in this process are the command's, as in a shell."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signals.take_over()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
