"""Data sets and models against Bagpipe's Tables 5.1 and 5.2."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gapless.errors import InputError
from gapless.profiles.traces.recommendation import (
    dense_model_names,
    embedding_dataset_names,
    named_dense_model,
    named_embedding_dataset,
    table_laws,
)

CARDINALITIES = Path(__file__).resolve().parents[3] / "shared" / "data" / "bagpipe" / "kaggle_criteo_cardinalities.json"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("dlrm", 2_962_289), ("wide-and-deep", 136_673), ("deep-and-cross", 2_718_609), ("deepfm", 33_851_283)],
)
def test_dense_parameters_are_the_table_s(name: str, parameters: int) -> None:
    model = named_dense_model(name)
    assert model.parameters == parameters
    assert model.size_bytes == 4 * parameters


def test_arithmetic_of_a_step_follows_from_the_layers() -> None:
    model = named_dense_model("wide-and-deep")
    macs = 13 * 256 + 2 * 256 * 256 + 1504
    assert model.macs == macs
    assert model.training_flops(16) == 6 * macs * 16
    with pytest.raises(InputError, match="model 'wide-and-deep': the batch size must be >= 1, got 0"):
        model.training_flops(0)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("criteo-kaggle", (39_200_000, 26, 13, 33_762_577, 48)),
        ("avazu", (40_400_000, 21, 1, 9_400_000, 48)),
        ("criteo-terabyte", (4_370_000_000, 26, 13, 882_770_000, 16)),
    ],
)
def test_data_sets_are_the_table_s(name: str, numbers: tuple[int, ...]) -> None:
    dataset = named_embedding_dataset(name)
    assert (dataset.examples, dataset.tables, dataset.numbers, dataset.rows, dataset.dimension) == numbers
    assert dataset.size_bytes == dataset.rows * dataset.dimension * 4


@pytest.mark.parametrize(("name", "unit"), [("criteo-kaggle", 1), ("avazu", 10**5), ("criteo-terabyte", 10**4)])
def test_table_sizes_add_up_to_the_published_sum_in_its_digits(name: str, unit: int) -> None:
    dataset = named_embedding_dataset(name)
    assert dataset.tables == len(dataset.table_rows) == len(set(table_laws(name)[0]))
    assert round(sum(dataset.table_rows) / unit) * unit == dataset.rows


@pytest.mark.parametrize("name", ["avazu", "criteo-terabyte"])
def test_a_table_of_which_no_access_is_published_has_the_law_of_the_nearest_in_size(name: str) -> None:
    kaggle = table_laws("criteo-kaggle")[1]
    for law in table_laws(name)[1]:
        nearest = min(kaggle, key=lambda other: (max(other.rows, law.rows) / min(other.rows, law.rows), other.rows))
        assert replace(nearest, rows=law.rows) == law


def test_criteo_kaggle_s_tables_have_the_published_sizes() -> None:
    if not CARDINALITIES.is_file():
        pytest.skip(f"the published table sizes are not at {CARDINALITIES}")
    published = json.loads(CARDINALITIES.read_text())
    sizes = published if isinstance(published, list) else next(iter(published.values()))
    assert [law.rows for law in table_laws("criteo-kaggle")[1]] == sizes
    assert list(named_embedding_dataset("criteo-kaggle").table_rows) == sizes


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(InputError, match=r"data set: must be one of .* got 'criteo-kagle'; did you mean"):
        named_embedding_dataset("criteo-kagle")
    with pytest.raises(InputError, match=r"model: must be one of .* got 'dlmr'; did you mean 'dlrm'"):
        named_dense_model("dlmr")
    assert len(embedding_dataset_names()) == 3
    assert len(dense_model_names()) == 4
