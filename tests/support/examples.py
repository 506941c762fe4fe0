"""How many random examples a test looks at."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def share(count: int) -> int:
    """`count` with `--thorough`, a tenth without: the profiles of tests/conftest.py say what share it is in percent."""
    return max(1, count * settings.default.max_examples // 100)


def examples(count: int, **others: Any) -> settings:
    """The settings of a property test that looks at `share(count)` examples."""
    return settings(max_examples=share(count), **others)
