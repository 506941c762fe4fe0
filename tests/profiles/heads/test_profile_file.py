"""Head profiles: files, what they refuse, and synthetic ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.heads.named import find_head_profile, head_profile_names
from gapless.profiles.heads.profile import DISTANCES, HeadProfile, Rises
from gapless.profiles.heads.profile_file import read_head_profile, write_head_profile
from gapless.schemas import load_schema

PROFILE = find_head_profile("synthetic:layers=2,heads=4,key_heads=2,dimension=16")
FIRST_KEPT = np.tril(np.ones((2, 2), dtype=np.bool_))[None].repeat(2, axis=0)
RISES = Rises(np.array([[0.25, 0.0], [0.5, 0.0]]), FIRST_KEPT)


def test_a_file_holds_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "heads.npz"
    write_head_profile(path, PROFILE)
    found = find_head_profile(str(path))
    for name in (*DISTANCES,):
        assert np.array_equal(found.distance(name), PROFILE.distance(name))
    for name in ("name", "key_heads", "dimension", "parameters", "tokens", "source"):
        assert getattr(found, name) == getattr(PROFILE, name)
    before = path.read_bytes()
    write_head_profile(path, found)
    assert path.read_bytes() == before


def test_the_schema_says_what_meta_holds(tmp_path: Path) -> None:
    write_head_profile(tmp_path / "heads.npz", PROFILE)
    with np.load(tmp_path / "heads.npz") as archive:
        meta = json.loads(archive["meta"].tobytes())
    check = jsonschema.Draft202012Validator(load_schema("head-profile"))
    assert not list(check.iter_errors(meta))
    for name in meta:
        assert list(check.iter_errors({**meta, name: 0}))


def changed(path: Path, profile: HeadProfile = PROFILE, **changes: Any) -> None:
    """The profile's file with other arrays, or other fields of its meta; None leaves one out."""
    write_head_profile(path, profile)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive}
    meta = json.loads(arrays["meta"].tobytes())
    for name, value in changes.items():
        target = arrays if name in arrays else meta
        target[name] = value
        if value is None:
            del target[name]
    if "meta" not in changes:
        arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    np.savez(path, **arrays)


def test_a_file_holds_the_rises_of_the_loss_where_they_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "heads.npz"
    write_head_profile(path, replace(PROFILE, rises=RISES))
    found = read_head_profile(path).rises
    assert found is not None
    assert np.array_equal(found.loss, RISES.loss)
    assert np.array_equal(found.kept, RISES.kept)
    write_head_profile(path, PROFILE)
    assert read_head_profile(path).rises is None


def rises(value: float, *place: int) -> np.ndarray:
    found = RISES.loss.copy()
    found[place] = value
    return found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rise": None}, "rise and rise_kept must be there both or neither, got rise_kept"),
        ({"rise": rises(-1.0, 0, 0)}, "rise must be >= 0, or nan between one and all, got -1.0 in layer 0, 1 heads"),
        ({"rise": rises(np.nan, 1, 0)}, "rise must be >= 0, or nan between one and all, got nan in layer 1, 1 heads"),
        ({"rise": rises(np.inf, 1, 0)}, "got inf in layer 1, 1 heads"),
        ({"rise": rises(0.5, 1, 1)}, "rise of all heads must be 0, got 0.5 in layer 1, 2 heads"),
        ({"rise": RISES.loss[0]}, r"rise must be \(layers, key heads\), got \(2,\)"),
        ({"rise": RISES.loss[:1]}, r"rise_kept must be \(1, 2, 2\), as rise is, got \(2, 2, 2\)"),
        ({"rise": RISES.loss[:1], "rise_kept": FIRST_KEPT[:1]}, r"rise must be \(2, 2\), layers and key heads, got"),
        ({"rise": np.array([["a"]])}, "rise must hold floats and rise_kept truth values, got <U1 and bool"),
        ({"rise_kept": FIRST_KEPT.astype(int)}, "truth values, got float64 and int64"),
        ({"rise_kept": ~FIRST_KEPT}, "rise_kept of layer 0 must be 2 heads at 2, got 0"),
    ],
)  # fmt: skip
def test_wrong_rises_are_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "heads.npz"
    changed(path, replace(PROFILE, rises=RISES), **changes)
    with pytest.raises(InputError, match=message) as raised:
        read_head_profile(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def distances(value: float, *place: int) -> np.ndarray:
    found = PROFILE.scores.copy()
    found[place] = value
    return found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "array 'scores' is missing in what must be a gapless.head-profile"),
        ({"meta": np.frombuffer(b"{", dtype=np.uint8)}, "meta: not JSON"),
        ({"meta": np.frombuffer(b"\xff", dtype=np.uint8)}, "must be a UTF-8 text file"),
        ({"format": "gapless.plan"}, 'format: must be gapless.head-profile, got "gapless.plan"; this is a plan'),
        ({"version": 2}, "version: must be 1, got 2"),
        ({"tokens": 0}, "tokens: must be a whole number in 1.."),
        ({"extra": 1}, "field 'extra' is unknown"),
        ({"key_heads": 3}, "key_heads must divide the 4 heads, got 3"),
        ({"output": PROFILE.output[:1]}, r"output must be \(2, 4, 4\), as scores is, got \(1, 4, 4\)"),
        ({"scores": PROFILE.scores[0]}, r"scores must be \(layers, heads, heads\), got \(4, 4\)"),
        ({"scores": np.array(["a"])}, "array 'scores' must hold numbers, got <U1"),
        ({"scores": distances(-1.0, 0, 1, 2)}, "must be numbers >= 0, got -1.0 in layer 0, heads 1 and 2"),
        ({"scores": distances(np.nan, 1, 1, 2)}, "must be numbers >= 0, got nan in layer 1"),
        ({"scores": distances(0.5, 1, 3, 3)}, "of a head from itself must be 0, got 0.5 in layer 1, heads 3 and 3"),
        ({"scores": np.array([{}], dtype=object)}, "array 'scores': is pickled"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "heads.npz"
    changed(path, **changes)
    with pytest.raises(InputError, match=message) as raised:
        read_head_profile(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_what_is_no_archive_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "heads.npz"
    with pytest.raises(InputError, match=r"cannot read .*heads.npz: No such file"):
        read_head_profile(path)
    path.write_text("no archive")
    with pytest.raises(InputError, match=r"heads.npz: not readable"):
        read_head_profile(path)
    with path.open("wb") as stream:
        np.save(stream, PROFILE.scores)
    with pytest.raises(InputError, match=r"heads.npz: not readable: File is not a zip.*a gapless.head-profile, which"):
        read_head_profile(path)


def test_shipped_profiles_are_read_by_name() -> None:
    for name in head_profile_names():
        assert find_head_profile(name).name == name
    found = find_head_profile("small-lm")
    assert (found.layers, found.heads, found.key_heads, found.dimension, found.tokens) == (4, 8, 8, 16, 8192)
    assert found.rises is not None
    assert found.rises.is_measured.all()


def test_a_synthetic_profile_is_the_same_for_its_numbers() -> None:
    first, again = (find_head_profile("synthetic:layers=3,heads=8,seed=1") for _ in range(2))
    assert np.array_equal(first.output, again.output)
    assert (first.layers, first.heads, first.key_heads, first.group) == (3, 8, 8, 1)
    nearest = [np.sort(layer + np.eye(8) * 9, axis=1)[:, 0].mean() for layer in first.scores]
    assert nearest[0] > nearest[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("synthetic:depth=3", "synthetic takes layers, heads, key_heads, dimension, seed, got 'depth'"),
        ("synthetic:layers=0", "profile: layers of synthetic must be a whole number in 1..4096, got '0'"),
        ("synthetic:layers=x", "layers of synthetic must be a whole number"),
        ("synthetic:heads=6,key_heads=4", "key_heads must divide the 6 heads, got 4"),
        ("synthetic:layers=4096,heads=4096", "layers x heads x heads must be <= 134217728"),
    ],
)
def test_a_wrong_synthetic_profile_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_head_profile(text)


@pytest.mark.parametrize("name", ["dimension", "parameters", "tokens", "key_heads"])
def test_counts_are_positive(name: str) -> None:
    values = {"key_heads": 2, "dimension": 16, "parameters": 10, "tokens": 5, name: 0}
    with pytest.raises(InputError, match=f"{name} must be >= 1, got 0"):
        HeadProfile("p", PROFILE.scores, PROFILE.output, **values)
