"""Times to the first and to the next token: what is timed, how often, and with which cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from extras import needs_transformers

from gapless.errors import InputError

pytestmark = needs_transformers


def test_all_are_served_in_every_round_and_with_their_caches() -> None:
    import torch

    from gapless.torch.heads.latency import latencies
    from gapless.torch.heads.models import load_language_model

    found = load_language_model("hf:tiny-llama-gqa")
    prompts = torch.arange(2 * 20).view(2, 20)
    kept, rows = [[0, 2, 3], [1]], np.array([[0, 1, 4, 5, 4, 5, 6, 7], [2, 3] * 4])
    seen: list[Any] = []

    def choose(distance: np.ndarray) -> Any:
        seen.append(distance)
        return kept, rows

    made = latencies(found, prompts, (kept, rows), choose, 5, 4, 3)
    assert list(made) == ["full", "static", "request"]
    assert [len(each.first) for each in made.values()] == [3, 3, 3]
    assert [len(each.following) for each in made.values()] == [9, 9, 9]
    assert [len(each.clustering) for each in made.values()] == [0, 0, 3]
    assert len(seen) == 2 * (3 + 1)
    head_bytes = 2 * (20 + 3) * 8 * 4
    assert [each.cache_bytes for each in made.values()] == [16 * head_bytes, 12 * head_bytes, 12 * head_bytes]
    assert min(span.cpu_s for each in made.values() for span in each.first) > 0
    with pytest.raises(InputError, match="new_tokens"):
        latencies(found, prompts, (kept, rows), choose, 5, 4000, 3)
