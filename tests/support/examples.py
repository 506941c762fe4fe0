"""How many random examples a test looks at, in the default run and with `--thorough`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

LEAST, MOST = 10, 100
"""The examples of a property test that asks for no number, without `--thorough` and with it; no test looks at fewer
than `LEAST`. The two profiles of tests/conftest.py differ in them."""


def share(count: int, cases: int = 1) -> int:
    """`count` with `--thorough`, a fiftieth without; but `LEAST` at least, of all `cases` of a test together."""
    return max(-(-LEAST // cases), count if is_thorough() else count // 50)


def examples(count: int, cases: int = 1, **others: Any) -> settings:
    """The settings of a property test that looks at `share(count, cases)` examples."""
    return settings(max_examples=share(count, cases), **others)


def is_thorough() -> bool:
    """Whether tests run with `--thorough`."""
    return bool(settings.default.max_examples == MOST)
