"""Sizes, times, bandwidths and energies in people's spelling."""

from __future__ import annotations

import pytest

from gapless.errors import InputError
from gapless.units import (
    format_bandwidth,
    format_bytes,
    format_joules,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1MB", 10**6),
        ("1M", 10**6),
        ("1MiB", 2**20),
        ("2 kib", 2048),
        ("1.5KB", 1500),
        ("4096", 4096),
        ("1e3", 1000),
        ("5.3GiB", 5690831667),
        ("1.001MB", 1001000),
        ("1.9", 1),
        ("1000TB", 10**15),
    ],
)
def test_sizes_are_read_in_either_scale(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "MB", "1XB", "-1MB", "0", "0.5", "1.0001KB1", "1e400", "1e30", "1001TB", "1e-400", "nan", "inf"]
)
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


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("10Gbps", 1.25e9),
        ("25Gb/s", 3.125e9),
        ("100 Gbit/s", 12.5e9),
        ("12.5GB/s", 12.5e9),
        ("12.5 GBps", 12.5e9),
        ("800mbps", 1e8),
        ("1.6Tb/s", 2e11),
        ("8b/s", 1.0),
    ],
)
def test_small_b_is_bits_and_large_b_is_bytes(text: str, bytes_per_s: float) -> None:
    assert parse_bandwidth(text) == bytes_per_s


@pytest.mark.parametrize("text", ["", "10", "10G", "10GB", "Gbps", "-1Gbps", "nanGbps", "10 Gb per s", "10Xbps"])
def test_what_is_no_bandwidth_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"bandwidth: must be a number and a unit such as 10Gbps \(bits\)"):
        parse_bandwidth(text)


@pytest.mark.parametrize("text", ["0Gbps", "1e400Gbps"])
def test_bandwidth_of_zero_or_infinity_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--bandwidth: must be finite and > 0"):
        parse_bandwidth(text, "--bandwidth")


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [(1.25e9, "10 Gb/s"), (1e8, "800 Mb/s"), (2e11, "1.6 Tb/s"), (500.0, "4 Kb/s"), (1, "8 b/s")],
)
def test_bandwidths_are_shown_in_bits(bytes_per_s: float, text: str) -> None:
    assert format_bandwidth(bytes_per_s) == text
    assert parse_bandwidth(text) == bytes_per_s


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("10us", 1e-5), ("10 µs", 1e-5), ("1.5ms", 1.5e-3), ("2s", 2.0), ("50ns", 5e-8), ("0", 0.0)],
)
def test_times_are_read_with_their_unit(text: str, duration_s: float) -> None:
    assert parse_seconds(text) == pytest.approx(duration_s, rel=1e-15)


@pytest.mark.parametrize("text", ["", "10", "us", "-1us", "10 min", "1e400s", "10US"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="latency: must be a number and a unit such as 10us"):
        parse_seconds(text, "latency")
