"""Bags from `.npz` and csv files, and from generators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.generators import skew_trace, zipf_trace
from gapless.profiles.traces.named import find_trace
from gapless.profiles.traces.trace import BLOCK_EXAMPLES

NESTED = [[[5, 6], [7]], [[], [5, 5, 2]], [[], []], [[1], [3]]]


def nested_of(trace: Any) -> list[list[list[int]]]:
    found = []
    for bags in trace.blocks():
        assert isinstance(bags, Bags)
        values = iter(bags.values.tolist())
        found += [[[next(values) for _ in range(length)] for length in row] for row in bags.lengths.tolist()]
    return found


def arrays(by_table: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values and lengths of `NESTED`, example by example, or table by table."""
    order = list(zip(*NESTED, strict=True)) if by_table else NESTED
    values = [id_ for outer in order for bag in outer for id_ in bag]
    return np.array(values), np.array([[len(bag) for bag in outer] for outer in order])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("layout", ["examples", "lengths", "offsets"])
def test_npz_is_read_in_each_layout(tmp_path: Path, layout: str, save: Any) -> None:
    values, lengths = arrays(layout != "examples")
    bounds = {
        "examples": {"lengths": lengths},
        "lengths": {"lengths": lengths.reshape(-1), "keys": ["a", "b"]},
        "offsets": {"offsets": np.append(0, np.cumsum(lengths)), "keys": ["a", "b"]},
    }
    save(tmp_path / "t.npz", values=values, **bounds[layout])
    trace = find_trace(tmp_path / "t.npz")
    assert trace.table_names == (("table0", "table1") if layout == "examples" else ("a", "b"))
    assert trace.examples == 4
    assert nested_of(trace) == nested_of(trace) == NESTED


def test_embedding_bag_has_one_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", values=[4, 2, 2, 9], offsets=[0, 2, 2, 4])
    assert nested_of(find_trace(tmp_path / "t.npz")) == [[[4, 2]], [[]], [[2, 9]]]


@pytest.mark.parametrize("by_table", [False, True])
def test_blocks_of_a_long_file_are_the_whole(tmp_path: Path, by_table: bool) -> None:
    chance = np.random.default_rng(0)
    lengths = chance.integers(0, 3, (BLOCK_EXAMPLES + 100, 2), dtype=np.int8)
    values = chance.integers(0, 99, int(lengths.sum()), dtype=np.uint16)
    file = {"lengths": lengths.T.reshape(-1), "keys": ["a", "b"]} if by_table else {"lengths": lengths}
    np.savez(tmp_path / "t.npz", values=values, **file)
    blocks = list(find_trace(tmp_path / "t.npz").blocks())
    assert [len(block) for block in blocks] == [BLOCK_EXAMPLES, 100]
    assert np.concatenate([block.lengths for block in blocks]).tolist() == lengths.tolist()
    if by_table:
        for table, part in enumerate(np.split(values, [int(lengths[:, 0].sum())])):
            found = [block.values[block.table == table] for block in blocks]
            assert np.concatenate(found).tolist() == part.tolist()
    else:
        assert np.concatenate([block.values for block in blocks]).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("arrays", "rule"),
    [
        ({"values": [1, 2], "lengths": [[1, 2]]}, "lengths must add up to the 2 values, got 3"),
        ({"values": [1, 2], "lengths": [[3, -1]]}, "lengths must be >= 0, got -1 in example 0, table 1"),
        ({"values": [1, 2], "offsets": [0, 2, 1]}, "offsets must not fall, got -1 in example 1, table 0"),
        ({"values": [1, 2], "offsets": [1, 2]}, "offsets must begin with 0, got 1"),
        ({"values": [1, 2], "offsets": [0, 1]}, "offsets must add up to the 2 values, got 1"),
        ({"values": [1, -2], "lengths": [1, 1]}, "ids must be in 0..17592186044415, got -2 in example 1, table 0"),
        ({"values": [1], "lengths": [1], "keys": ["a", "b"]}, "lengths must be as many for each of 2 tables, got 1"),
        ({"values": [1], "offsets": [0, 1], "keys": ["a", "b"]}, "each of 2 tables, and one more at the end, got 2"),
        ({"values": [1], "lengths": [[1]], "keys": ["a", "b"]}, "keys must name each of 1 tables, got 2"),
        (
            {"values": [1.5], "lengths": [[1]]},
            "array 'values': must be integers in 1 dimensions, row by row, got float64",
        ),
        ({"values": [1], "offsets": [[0, 1]]}, "array 'offsets': must be integers in 1 dimensions"),
        ({"values": [1], "lengths": [[1]], "keys": [3]}, "keys must be texts, one for each table, got int64"),
        ({"values": np.empty(0, int), "offsets": [0]}, "offsets must be of at least one example and table, got none"),
    ],
)
def test_npz_of_bags_that_do_not_fit_is_refused(tmp_path: Path, arrays: dict[str, Any], rule: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(InputError, match=re.escape(rule)):
        list(find_trace(tmp_path / "t.npz").blocks())


def test_csv_cells_may_be_lists(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("user,items,tags\nann,3;17;4,x;y\nbob,,\nann,17,y;z;y\n")
    trace = find_trace(tmp_path / "t.csv", columns=["user", "items", "tags"], bag_columns=["tags"])
    assert nested_of(trace) == [[[0], [3, 17, 4], [0, 1]], [[1], [], []], [[0], [17], [1, 2, 1]]]


def test_csv_lists_of_names_are_names_unless_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("tags,codes\nx;y,1;2\ny,1\nx;y,1;2\n")
    (block,) = find_trace(tmp_path / "t.csv", columns=["tags", "codes"], string_columns=["codes"]).blocks()
    assert block.tolist() == [[0, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("cell", ["3;-4", "3;;4", "3;x"])
def test_csv_list_with_a_part_that_is_no_id_is_refused(tmp_path: Path, cell: str) -> None:
    (tmp_path / "t.csv").write_text("items\n" + "3;4\n" * BLOCK_EXAMPLES + f"{cell}\n")
    rule = f"line {BLOCK_EXAMPLES + 2}: column 'items' must be a whole number in 0..17592186044415, got '{cell}'"
    with pytest.raises(InputError, match=re.escape(rule)):
        list(find_trace(tmp_path / "t.csv", columns=["items"], bag_columns=["items"]).blocks())


def test_csv_list_after_a_block_of_numbers_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("items\n" + "3\n" * BLOCK_EXAMPLES + "3;4\n")
    with pytest.raises(InputError, match="got '3;4' as in the lines before; or let it be a bag column"):
        list(find_trace(tmp_path / "t.csv", columns=["items"]).blocks())


def test_generated_bags_have_their_pooling_factors() -> None:
    trace = zipf_trace([50, 1000, 9], 1.2, 20_000, seed=4, pooling=[1, 3.5, 20])
    lengths = np.concatenate([block.lengths for block in trace.blocks()])
    assert lengths[:, 0].tolist() == [1] * 20_000
    assert lengths.min() == 1
    np.testing.assert_allclose(lengths.mean(axis=0), [1, 3.5, 20], rtol=0.02)
    shorter = next(zipf_trace([50, 1000, 9], 1.2, 300, seed=4, pooling=[1, 3.5, 20]).blocks())
    longer = next(trace.batches(300))
    assert shorter.values.tolist() == longer.values.tolist()
    assert max(block.values[block.table == 2].max() for block in trace.blocks()) < 9


def test_one_pooling_factor_serves_all_tables() -> None:
    (block,) = skew_trace([50, 60], 0.4, 2000, pooling=[2]).blocks()
    np.testing.assert_allclose(block.lengths.mean(axis=0), [2, 2], rtol=0.1)


@pytest.mark.parametrize(
    ("factors", "rule"),
    [
        ([2, 3, 4], "pooling factors must be one, or one for each of 2 tables, got 3"),
        ([0.5], "pooling factors must be in 1..10000, got 0.5"),
        ([float("nan")], "pooling factors must be in 1..10000, got nan"),
    ],
)
def test_wrong_pooling_factors_are_refused(factors: list[float], rule: str) -> None:
    with pytest.raises(InputError, match=re.escape(rule)):
        zipf_trace([5, 6], 1.0, 10, pooling=factors)
