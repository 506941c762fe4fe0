"""How many random examples a property test looks at."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(count: int, **others: Any) -> settings:
    """`count` of them with `--thorough`, a tenth without: the profiles of tests/conftest.py say what share that is."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 100), **others)
