"""Buckets for DDP: caps that give a plan's groups back, and files."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import DdpBuckets, assigned_groups, read_ddp_buckets, write_ddp_buckets

TINY = DdpBuckets("tiny", ("c", "b", "a"), (60, 20, 144), ((0, 1), (2, 2)))


def random_buckets(chance: random.Random, count: int, most_bytes: int) -> DdpBuckets:
    sizes = tuple(chance.randint(1, most_bytes) for _ in range(count))
    ends = sorted({count, *(chance.randint(1, count) for _ in range(chance.randint(0, count)))})
    groups = tuple((start, end - 1) for start, end in zip([0, *ends], ends, strict=False))
    return DdpBuckets("random", tuple(f"p{k}" for k in range(count)), sizes, groups)


def test_caps_are_the_bytes_of_the_groups_in_mib() -> None:
    assert TINY.bucket_bytes == (80, 144)
    assert TINY.bucket_cap_mb_list == (80 / 2**20, 144 / 2**20)
    assert TINY.buckets == (("c", "b"), ("a",))


@pytest.mark.parametrize("most_bytes", [3, 2**20, 2**40])
def test_ddps_rule_gives_random_groups_back(most_bytes: int) -> None:
    chance = random.Random(most_bytes)
    for _ in range(300):
        buckets = random_buckets(chance, chance.randint(1, 30), most_bytes)
        assert assigned_groups(buckets.parameter_bytes, buckets.bucket_cap_mb_list) == list(buckets.groups)


def test_order_within_a_group_does_not_matter() -> None:
    chance = random.Random(1)
    for _ in range(100):
        buckets = random_buckets(chance, 20, 5)
        shuffled: list[int] = []
        for first, last in buckets.groups:
            part = list(buckets.parameter_bytes[first : last + 1])
            chance.shuffle(part)
            shuffled += part
        assert assigned_groups(shuffled, buckets.bucket_cap_mb_list) == list(buckets.groups)


def test_last_cap_serves_all_further_buckets_and_the_rest_is_one() -> None:
    assert assigned_groups([4, 4, 4, 4, 4, 2], [4 / 2**20, 8 / 2**20]) == [(0, 0), (1, 2), (3, 4), (5, 5)]


def test_a_gradient_without_bytes_cannot_end_a_larger_group() -> None:
    with pytest.raises(InputError, match=r"groups\[0\]: DDP would make \[0, 0\] of \[0, 1\]: a bucket is full before"):
        DdpBuckets("tiny", ("b", "a", "c"), (8, 0, 4), ((0, 1), (2, 2)))
    assert DdpBuckets("tiny", ("b", "a", "c"), (8, 0, 4), ((0, 0), (1, 2))).bucket_bytes == (8, 4)
    assert DdpBuckets("tiny", ("b", "a", "c"), (8, 0, 4), ((0, 0), (1, 1), (2, 2))).bucket_bytes == (8, 0, 4)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((), "groups: must be at least one, and end with parameter 2, got -1"),
        (((0, 1),), "groups: must be at least one, and end with parameter 2, got 1"),
        (((0, 1), (1, 2)), r"groups\[1\]: must be \[2, last\] with last >= 2, got \[1, 2\]"),
        (((0, 0), (1, 0), (1, 2)), r"groups\[1\]: must be \[1, last\] with last >= 1, got \[1, 0\]"),
        (((0, 3),), "groups: must be at least one, and end with parameter 2, got 3"),
    ],
)
def test_groups_that_do_not_cut_the_parameters_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DdpBuckets("tiny", ("c", "b", "a"), (60, 20, 144), groups)


def test_numbers_that_are_no_sizes_and_repeated_names_are_refused() -> None:
    with pytest.raises(InputError, match="parameter 'b': bytes must be >= 0, got -1"):
        DdpBuckets("tiny", ("c", "b"), (60, -1), ((0, 1),))
    with pytest.raises(InputError, match=r"parameter_bytes: must add up to at most 2\^53"):
        DdpBuckets("tiny", ("c", "b"), (2**53, 1), ((0, 1),))
    with pytest.raises(InputError, match="one entry for each of 2"):
        DdpBuckets("tiny", ("c", "b"), (60,), ((0, 1),))
    with pytest.raises(InputError, match="names must differ, got 'c' twice"):
        DdpBuckets("tiny", ("c", "c"), (60, 1), ((0, 1),))


def test_file_holds_what_a_user_passes_to_ddp_and_reads_back(tmp_path: Path) -> None:
    write_ddp_buckets(tmp_path / "buckets.json", TINY)
    data = json.loads((tmp_path / "buckets.json").read_text())
    assert data["bucket_cap_mb_list"] == [80 / 2**20, 144 / 2**20]
    assert data["parameter_order"] == ["c", "b", "a"]
    assert data["buckets"][1] == {"size_bytes": 144, "parameters": [{"name": "a", "size_bytes": 144}]}
    assert data["torch"] == "2.13.0"
    assert any("find_unused_parameters" in line for line in data["assumes"])
    assert read_ddp_buckets(tmp_path / "buckets.json") == TINY


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bucket_cap_mb_list": [1, 2]}, "bucket_cap_mb_list: must be what the parameters give"),
        ({"parameter_order": ["a", "b", "c"]}, "parameter_order: must be what the parameters give"),
        ({"buckets": []}, "groups: must be at least one"),
        ({"buckets": [{"size_bytes": 5, "parameters": [{"name": "a", "size_bytes": 4}]}]}, "size_bytes: must be what"),
        ({"buckets": [{"size_bytes": 0, "parameters": []}]}, r"groups\[0\]: must be \[0, last\]"),
        ({"version": 2}, "version: must be 1, got 2"),
        ({"caps": 1}, "field 'caps' is unknown"),
    ],
)
def test_file_that_contradicts_itself_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "buckets.json"
    write_ddp_buckets(path, TINY)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=rf"buckets\.json: .*{message}"):
        read_ddp_buckets(path)


def test_modes_are_kept_and_must_be_of_all_buckets_or_of_none(tmp_path: Path) -> None:
    path, mixed = tmp_path / "b.json", replace(TINY, modes=("topk:0.01", "plain"))
    write_ddp_buckets(path, mixed)
    assert read_ddp_buckets(path) == mixed
    data = json.loads(path.read_text())
    del data["buckets"][0]["mode"]
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="modes: must be one for each of 2 buckets, got 1"):
        read_ddp_buckets(path)
