"""A small part of the work of TACCL's searches, counted, so that a test's answer doesn't depend on the clock."""

from __future__ import annotations

from gapless.encodings.taccl.parameters import Parameters

__all__ = ["LITTLE"]

LITTLE = Parameters().with_share(0.05)
