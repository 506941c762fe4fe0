"""Sizes, times and energies in people's spelling."""

from __future__ import annotations

import pytest

from planwright.errors import InputError
from planwright.units import format_bytes, format_joules, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1MB", 10**6), ("1M", 10**6), ("1MiB", 2**20), ("2 kib", 2048), ("1.5KB", 1500), ("4096", 4096), ("1e3", 1000)],
)
def test_sizes_are_read_in_either_scale(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "1XB", "-1MB", "0", "0.5", "1.0001KB1", "1e400", "nan", "inf"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="size: must be"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0.0, "0 s"), (1.5, "1.5 s"), (0.0032, "3.2 ms"), (9.17e-4, "917 us"), (3e-7, "300 ns"), (-2.0, "-2 s")],
)
def test_times_have_a_scale_that_fits(duration_s: float, text: str) -> None:
    assert format_seconds(duration_s) == text


@pytest.mark.parametrize(
    ("energy_j", "text"),
    [(0.0, "0 J"), (84.23, "84.23 J"), (1250.0, "1.25 kJ"), (3e6, "3 MJ"), (0.0069, "6.9 mJ"), (2e-5, "20 uJ")],
)
def test_energies_have_a_scale_that_fits(energy_j: float, text: str) -> None:
    assert format_joules(energy_j) == text


@pytest.mark.parametrize(("size_bytes", "text"), [(5e9, "5 GB"), (1.5e6, "1.5 MB"), (512, "512 B"), (0, "0 B")])
def test_sizes_have_a_scale_that_fits(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text
