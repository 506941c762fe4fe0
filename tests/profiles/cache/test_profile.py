"""Cache profiles: files give back what was written, and errors that can't be are refused; bytes of layouts."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.cache.layout import FORMATS, PARTS, Layout
from gapless.profiles.cache.named import find_cache_profile
from gapless.profiles.cache.profile import CacheProfile
from gapless.profiles.cache.profile_file import read_cache_profile, write_cache_profile

SOME = find_cache_profile("synthetic:layers=2,heads=8,key_heads=4,dimension=16")


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    write_cache_profile(tmp_path / "cache.npz", SOME)
    again = read_cache_profile(tmp_path / "cache.npz")
    for name in CacheProfile.__dataclass_fields__:
        assert np.array_equal(getattr(again, name), getattr(SOME, name)), name


def test_a_file_without_formats_of_six_and_five_bits_is_made_again(tmp_path: Path) -> None:
    path, meta = tmp_path / "cache.npz", {"format": "gapless.cache-profile", "version": 1, "name": "old"}
    np.savez(path, meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8), output=np.zeros((1, 2, 1, 4)))
    said = "cache.npz: meta: version: must be 2, got 1; `gapless profile cache` makes the file again"
    with pytest.raises(InputError, match=f"{said}$"):
        read_cache_profile(path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("formats", -SOME.formats, "formats must be numbers >= 0"),
        ("window", SOME.window[:, :1], "window must be"),
        ("windows", (16, 1024), "windows must hold the 32 recent tokens, got 16, 1024"),
        ("representatives", SOME.representatives + 8, "representatives must be below 8"),
        ("counts", (1, 1, 1), "representatives of layer 0 must keep 1 key heads at most"),
        ("layout", Layout(12), "dimension must be a multiple of 8"),
        ("key_heads", 3, "key_heads must divide the 8 heads"),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(SOME, **{field: value})


@pytest.mark.parametrize("shares", [SOME.shares, 0 * SOME.shares])
def test_heads_are_charged_their_layer_in_sum(shares: NDArray[np.float64]) -> None:
    by_head = replace(SOME, shares=shares).by_head("divergence")
    assert by_head.sum(axis=2) == pytest.approx(SOME.of("formats", "divergence"))


@pytest.mark.parametrize("window", [0, 40, 64])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", FORMATS)
def test_bytes_grow_by_whole_tokens_and_groups_shrink_them(window: int, part: str, name: str) -> None:
    layout = Layout(16, 16, 20, 4)
    sizes = [layout.head_bytes(part, name, tokens, window, 2) for tokens in range(200)]
    assert sizes[20] == 20 * 16 * 2
    assert all(later - size <= 16 * 2 for size, later in itertools.pairwise(sizes))
    # From the first drop on, a window's bytes come again with each group.
    if window:
        assert sizes[100] == sizes[116] == sizes[180]
    elif name != "full":
        assert sizes[180] - sizes[100] == layout.packed_bytes(part, name, 80)
