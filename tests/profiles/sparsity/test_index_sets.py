"""Index sets: what their columns must be, lower densities, the global top-k, files, generators."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.sparsity.index_file import find_index_sets, read_index_sets, write_index_sets
from gapless.profiles.sparsity.index_sets import IndexSets, index_sets


def small(values: bool = True) -> IndexSets:
    held = [[[0, 3, 5], [3, 4, 9]], [[1, 2], [7, 8]]]
    entries = [[[1.0, -5.0, 2.0], [4.0, -3.0, 0.5]], [[1.0, 2.0], [3.0, -4.0]]]
    return index_sets(held, 10, "small", entries if values else None)


def test_sets_are_by_step_and_rank() -> None:
    sets = small()
    assert sets.of(0, 1).tolist() == [3, 4, 9]
    assert sets.values_of(1, 1).tolist() == [3.0, -4.0]
    assert sets.counts.tolist() == [[3, 3], [2, 2]]
    assert sets.union(0).tolist() == [0, 3, 4, 5, 9]
    assert sets.density == 0.25


def test_the_global_top_is_of_the_sum() -> None:
    assert small().global_top(0, 2).tolist() == [4, 5]  # 3 cancels to -1
    assert small().global_top(0, 9).tolist() == [0, 3, 4, 5, 9]
    with pytest.raises(InputError, match="have no values"):
        small(values=False).global_top(0, 1)


def test_a_lower_density_keeps_the_largest_by_magnitude() -> None:
    part = small().part(density=0.2, steps=slice(0, 1))
    assert part.of(0, 0).tolist() == [3, 5]
    assert part.values_of(0, 0).tolist() == [-5.0, 2.0]
    assert part.of(0, 1).tolist() == [3, 4]
    assert small().part(ranks=1).counts.tolist() == [[3], [2]]


def test_what_was_not_recorded_is_refused() -> None:
    with pytest.raises(InputError, match=r"density: must be at most 0\.25, .* got 0\.9"):
        small().part(density=0.9)
    with pytest.raises(InputError, match="have no values to choose fewer by"):
        small(values=False).part(density=0.1)
    with pytest.raises(InputError, match=r"ranks: must be in 1\.\.2"):
        small().part(ranks=3)
    with pytest.raises(InputError, match="none of them is left"):
        small().part(steps=slice(2, 3))


@pytest.mark.parametrize(
    ("held", "rule"),
    [
        ([[[3, 2]]], "step 0, rank 0: indices must ascend"),
        ([[[2, 2]]], "must ascend, each once"),
        ([[[2, 10]]], r"must be in 0\.\.9, got 10"),
        ([[[1], [2]], [[1]]], "every step must have the same number of ranks"),
        ([[[-1]]], "must be whole numbers"),
        ([[[0.5]]], "must be whole numbers"),
    ],
)
def test_bad_sets_are_one_line(held: list[list[list[int]]], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        index_sets(held, 10)


def test_a_file_gives_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "grads.npz"
    for values in (True, False):
        sets = small(values)
        write_index_sets(path, sets)
        again = read_index_sets(path)
        assert (again.name, again.elements, again.steps, again.ranks) == ("small", 10, 2, 2)
        assert np.array_equal(again.indices, sets.indices)
        assert np.array_equal(again.start, sets.start)
        assert (again.values is None) is not values
    assert find_index_sets(path).ranks == 2


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "grads.npz"
    write_index_sets(path, small())
    with np.load(path) as archive:
        arrays = dict(archive)

    def refused(rule: str, **changes: object) -> None:
        np.savez(path, **{name: value for name, value in {**arrays, **changes}.items() if value is not None})
        with pytest.raises(InputError, match=rule):
            read_index_sets(path)

    meta = json.loads(arrays["meta"].tobytes())

    def as_meta(**changes: object) -> np.ndarray:
        return np.frombuffer(json.dumps({**meta, **changes}).encode(), dtype=np.uint8)

    refused("array 'start' is missing in what must be a gapless.index-sets", start=None)
    refused("indices must be int32", indices=arrays["indices"].astype(np.int64))
    refused("elements: must be", meta=as_meta(elements=0))
    refused("format", meta=as_meta(format="other"))
    refused("version", meta=as_meta(version=2))
    refused("start must cut the 10 indices into 4 sets", start=arrays["start"] + 1)
    refused("indices must ascend", indices=arrays["indices"][::-1].copy())
    refused("values must be finite", values=np.full(10, np.nan, dtype=np.float32))
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(InputError, match=r"must be a gapless\.index-sets"):
        read_index_sets(path)
    with pytest.raises(InputError, match="cannot read"):
        read_index_sets(tmp_path / "none.npz")


@pytest.mark.parametrize("name", ["uniform", "clustered", "drifting"])
def test_generated_sets_have_the_density_and_repeat(name: str) -> None:
    text = f"{name}:elements=20000,steps=3,seed=4"
    sets = find_index_sets(text, 5, 0.02)
    assert (sets.counts == 400).all()
    assert (sets.ranks, sets.steps, len(sets.parameter_names)) == (5, 3, 24)
    assert np.array_equal(sets.indices, find_index_sets(text, 5, 0.02).indices)
    assert not np.array_equal(sets.indices, find_index_sets(text.replace("4", "5"), 5, 0.02).indices)


def test_clustered_sets_cluster_and_uniform_ones_do_not() -> None:
    def busiest(name: str) -> float:
        """The share of the fullest tenth of the gradient."""
        sets = find_index_sets(f"{name}:elements=100000,steps=1", 2, 0.01)
        return float(np.bincount(sets.indices // 10000).max() / len(sets.indices))

    assert busiest("uniform") < 0.13
    assert busiest("clustered") > 0.2


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("clusterd", "did you mean 'clustered'"),
        ("grads.csv", "or an .npz file"),
        ("clustered:elements=0", "elements: must be"),
        ("clustered:overlap=2", "overlap: must be at most 1"),
        ("clustered:colour=2", "colour"),
        ("clustered:elements=2000000000,steps=1000", "ask for fewer steps"),
    ],
)
def test_bad_names_are_one_line(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        find_index_sets(text)


@pytest.mark.parametrize("density", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("name", ["uniform", "clustered"])
def test_dense_sets_have_their_density(name: str, density: float) -> None:
    sets = find_index_sets(f"{name}:elements=3000,steps=2", 3, density)
    assert (sets.counts == round(density * 3000)).all()
