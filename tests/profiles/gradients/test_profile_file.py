"""Fusion profile files: what is written is read back, and what is broken is refused in one line by file and field."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, PointsCost
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.profiles.gradients.profile_file import fusion_profile_text, read_fusion_profile, write_fusion_profile

PROFILE: dict[str, Any] = {
    "format": "gapless.fusion-profile",
    "version": 2,
    "name": "tiny",
    "forward_s": 0.02,
    "source": "made up",
    "tensors": [
        {"name": "fc.weight", "size_bytes": 4096, "backward_s": 0.001, "shape": [16, 64]},
        {"name": "conv.weight", "size_bytes": 1024, "backward_s": 0.003, "shape": [64, 2, 2]},
    ],
    "modes": [
        {
            "name": "topk",
            "error": "feedback",
            "encode": {"kind": "affine", "alpha_s": 0.0003, "beta_s_per_byte": 1e-10},
            "decode": {"kind": "affine", "alpha_s": 0.0002, "beta_s_per_byte": 2e-10},
            "communication": {"kind": "points", "points": [[4096, 0.0001], [1048576, 0.0009]]},
            "encoded_bytes": [4096, 0],
            "sent_bytes": [200.5, 1024],
        },
        {
            "name": "plain",
            "error": "exact",
            "communication": {"kind": "affine", "alpha_s": 0, "beta_s_per_byte": 1e-9},
        },
    ],
}


def write(folder: Path, content: Any, name: str = "profile.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data = copy.deepcopy(PROFILE)
    change(data)
    return data


def points(*values: Any) -> Callable[[dict[str, Any]], object]:
    """Sets the points of `communication`."""
    return lambda data: data["modes"][0]["communication"].update(points=list(values))


def test_every_field_is_read(tmp_path: Path) -> None:
    profile = read_fusion_profile(write(tmp_path, PROFILE))
    assert (profile.name, profile.forward_s, profile.source) == ("tiny", 0.02, "made up")
    assert profile.tensor_names == ("fc.weight", "conv.weight")
    np.testing.assert_array_equal(profile.size_bytes, [4096, 1024])
    np.testing.assert_array_equal(profile.backward_s, [0.001, 0.003])
    assert profile.shapes == ((16, 64), (64, 2, 2))
    through = PointsCost(((4096.0, 0.0001), (1048576.0, 0.0009)))
    encode, decode = AffineCost(0.0003, 1e-10), AffineCost(0.0002, 2e-10)
    topk = Mode("topk", through, encode, decode, "feedback", (4096.0, 0.0), (200.5, 1024.0))
    assert profile.modes == (topk, plain_mode(AffineCost(0.0, 1e-9)))
    assert (profile.mode_names, profile.compressing, profile.mode("topk")) == (("topk", "plain"), ("topk",), topk)
    assert (profile.tensor_count, profile.total_bytes) == (2, 5120)
    assert profile.compute_s == pytest.approx(0.024)


def test_optional_fields_may_be_absent(tmp_path: Path) -> None:
    def strip(data: dict[str, Any]) -> None:
        del data["source"]
        for tensor in data["tensors"]:
            del tensor["shape"]
        for title in ("encode", "decode", "encoded_bytes", "sent_bytes"):
            del data["modes"][0][title]

    profile = read_fusion_profile(write(tmp_path, changed(strip)))
    assert (profile.source, profile.shapes) == ("", ())
    topk = profile.modes[0]
    assert (topk.encode, topk.decode, topk.encoded_bytes, topk.sent_bytes) == (FREE, FREE, None, None)


def test_a_tensor_without_a_shape_is_a_vector_where_others_have_one(tmp_path: Path) -> None:
    profile = read_fusion_profile(write(tmp_path, changed(lambda data: data["tensors"][1].pop("shape"))))
    assert profile.shapes == ((16, 64), (256,))


def test_comments_are_allowed(tmp_path: Path) -> None:
    text = json.dumps(PROFILE).replace('"version"', '// the first\n"version"')
    assert read_fusion_profile(write(tmp_path, text)).name == "tiny"


numbers = st.floats(0, 1e9)
affine = st.builds(AffineCost, numbers, numbers)
flat_then_linear = st.builds(
    lambda at, base, more: PointsCost(((at, base), (at + 1000.0, base + more))), numbers, numbers, numbers
)
costs = st.one_of(affine, flat_then_linear)


@given(
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    tensors=st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.integers(0, 2**40), numbers),
        min_size=1, max_size=6, unique_by=lambda tensor: tensor[0],
    ),
    forward_s=numbers, compression=costs, communication=costs, uncompressed=st.one_of(st.none(), costs),
    vector=st.one_of(st.none(), numbers), shape=st.one_of(st.none(), st.lists(st.integers(1, 9), max_size=3)),
    source=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)  # fmt: skip
def test_every_profile_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    tensors: list[tuple[str, int, float]],
    forward_s: float,
    compression: Any,
    communication: Any,
    uncompressed: Any,
    vector: float | None,
    shape: list[int] | None,
    source: str,
) -> None:
    names, sizes, backward_s = zip(*tensors, strict=True)
    sent = None if vector is None else (vector,) * len(names)
    modes = (Mode("mine", communication, compression, compression, "unbiased", None, sent),)
    profile = FusionProfile(
        name, forward_s, names, np.array(sizes, dtype=np.int64), np.array(backward_s),
        modes if uncompressed is None else (plain_mode(uncompressed), *modes), source,
        () if shape is None else (tuple(shape),) * len(names),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("profile") / "p.json"
    write_fusion_profile(path, profile)
    back = read_fusion_profile(path)
    assert fusion_profile_text(back) == fusion_profile_text(profile)
    assert (back.name, back.forward_s, back.tensor_names, back.source) == (name, forward_s, names, source)
    assert (back.modes, back.shapes) == (profile.modes, profile.shapes)
    np.testing.assert_array_equal(back.size_bytes, profile.size_bytes)
    np.testing.assert_array_equal(back.backward_s, profile.backward_s)


BROKEN: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.update(version=1), r"version: must be 2, got 1"),
    (lambda d: d.update(format="gapless.plan"), r"format: must be gapless.fusion-profile, got"),
    (lambda d: d.pop("format"), r"field 'format' is missing"),
    (lambda d: d.update(name=3), r"name: must be a string, got 3"),
    (lambda d: d.pop("forward_s"), r"field 'forward_s' is missing"),
    (lambda d: d.update(forward_s=-1), r"forward_s: must be a number >= 0, got -1"),
    (lambda d: d.update(forward_s="1"), r'forward_s: must be a number >= 0, got "1"'),
    (lambda d: d.update(forward_s=10**400), r"forward_s: must be a number that fits into 64 bits"),
    (lambda d: d.update(forwards_s=1), r"field 'forwards_s' is unknown"),
    (lambda d: d.update(source=["x"]), r'source: must be a string, got \["x"\]'),
    (lambda d: d.pop("tensors"), r"field 'tensors' is missing"),
    (lambda d: d.update(tensors=[]), r"tensors must hold at least one, got none"),
    (lambda d: d.update(tensors={}), r"tensors: must be a list, got {}"),
    (lambda d: d["tensors"].append(4), r"tensors\[2\]: must be a JSON object"),
    (lambda d: d["tensors"][1].pop("size_bytes"), r"tensors\[1\]: field 'size_bytes' is missing"),
    (lambda d: d["tensors"][1].update(size_bytes=-4), r"tensors\[1\]: size_bytes: must be .* in 0\.\.\d+, got -4"),
    (lambda d: d["tensors"][1].update(size_bytes=0.5), r"tensors\[1\]: size_bytes: must be a whole .*, got 0.5"),
    (lambda d: d["tensors"][1].update(size_bytes=True), r"tensors\[1\]: size_bytes: must be a whole .*, got true"),
    (lambda d: d["tensors"][1].update(size_bytes=2**54), r"tensors\[1\]: size_bytes: must be a whole number in"),
    (lambda d: d["tensors"][1].update(backward_s=-1e-3), r"tensors\[1\]: backward_s: must be a number >= 0, got -0"),
    (lambda d: d["tensors"][1].update(backward_s=None), r"tensors\[1\]: backward_s: must be a number >= 0, got null"),
    (lambda d: d["tensors"][1].update(bytes=1), r"tensors\[1\]: field 'bytes' is unknown; known are backward_s, name"),
    (lambda d: d["tensors"][1].update(name="fc.weight"), r"names of tensors must differ, got 'fc.weight' twice"),
    (lambda d: [t.update(size_bytes=2**53) for t in d["tensors"]], r"size_bytes must sum to at most 2\^53, got"),
    (
        lambda d: d["tensors"][1].update(shape=[0]),
        r"tensors\[1\]: shape\[0\]: must be a whole number in 1\.\.\d+, got 0",
    ),
    (lambda d: d.pop("modes"), r"field 'modes' is missing"),
    (lambda d: d.update(modes=[]), r"modes must hold at least one, got none"),
    (lambda d: d.update(modes={}), r"modes: must be a list, got {}"),
    (lambda d: d["modes"][1].update(name="topk"), r"names of modes must differ, got 'topk' twice"),
    (lambda d: d["modes"][0].update(name="a,b"), r"mode: name must be a word without commas, got 'a,b'"),
    (lambda d: d["modes"][0].pop("error"), r"modes\[0\]: field 'error' is missing"),
    (lambda d: d["modes"][0].update(error="lossy"), r"modes\[0\]: error: must be one of exact, feedback, .*, got"),
    (
        lambda d: d["modes"][0].update(sent_bytes=[1]),
        r"mode 'topk': sent_bytes must have one entry for each of 2 tensors",
    ),
    (
        lambda d: d["modes"][0].update(sent_bytes=[1, -1]),
        r"modes\[0\]: sent_bytes\[1\]: must be a number in 0..2\^53, got",
    ),
    (lambda d: d["modes"][0].update(encode=1), r"modes\[0\]: encode: must be a JSON object"),
    (lambda d: d["modes"][0].pop("communication"), r"modes\[0\]: field 'communication' is missing"),
    (lambda d: d["modes"][0]["encode"].pop("kind"), r"modes\[0\]: encode: field 'kind' is missing"),
    (
        lambda d: d["modes"][0]["encode"].update(kind="linear"),
        r"modes\[0\]: encode: kind: must be one of affine, points",
    ),
    (
        lambda d: d["modes"][0]["encode"].update(alpha_s=-1),
        r"modes\[0\]: encode: alpha_s: must be a finite number >= 0",
    ),
    (
        lambda d: d["modes"][0]["encode"].update(beta_s_per_byte=-1),
        r"modes\[0\]: encode: beta_s_per_byte: must be a finite number >= 0, got",
    ),
    (
        lambda d: d["modes"][0]["encode"].update(alpha_us=1),
        r"modes\[0\]: encode: field 'alpha_us' is unknown; known are",
    ),
    (lambda d: d["modes"][0]["encode"].update(points=[[0, 1]]), r"modes\[0\]: encode: field 'points' is unknown"),
    (points(), r"modes\[0\]: communication: points: must hold at least one \[bytes, seconds\], got none"),
    (points([1]), r"modes\[0\]: communication: points\[0\]: must be \[bytes, seconds\], got \[1\]"),
    (points([1, 2, 3]), r"modes\[0\]: communication: points\[0\]: must be \[bytes, seconds\], got \[1, 2, 3\]"),
    (points([1, 2], "x"), r'modes\[0\]: communication: points\[1\]: must be \[bytes, seconds\], got "x"'),
    (points([1, "2"]), r'modes\[0\]: communication: points\[0\]: must be \[bytes, seconds\], got \[1, "2"\]'),
    (points([1, True]), r"modes\[0\]: communication: points\[0\]: must be \[bytes, seconds\], got \[1, true\]"),
    (points([1, 10**400]), r"modes\[0\]: communication: points\[0\]: must be two numbers that fit into 64 bits"),
    (points([1, -2]), r"modes\[0\]: communication: points\[0\]: must be two finite numbers >= 0, got \[1, -2\]"),
    (
        points([2, 1], [1, 2]),
        r"modes\[0\]: communication: points\[1\]: bytes must rise from point to point, got 1 after 2",
    ),
    (points([1, 2], [2, 1]), r"modes\[0\]: communication: points: the last two must not fall"),
    (
        lambda d: d["modes"][0]["communication"].update(points=3),
        r"modes\[0\]: communication: points: must be a list, got 3",
    ),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[case[1][:40] for case in BROKEN])
@pytest.mark.parametrize("name", ["profile.json", "p"])
def test_broken_file_is_refused_by_file_and_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], object], message: str, name: str
) -> None:
    """Also where the path is so short that a message could start with it by chance."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, changed(change), name)
    with pytest.raises(InputError, match=rf"^{name}: (profile 'tiny': |tensor '.*': )?{message}") as caught:
        read_fusion_profile(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        (json.dumps(PROFILE).replace("0.02", "NaN"), "numbers must be finite, got NaN"),
        (json.dumps(PROFILE).replace("0.02", "1e999"), "forward_s: numbers must be finite"),
        (
            json.dumps(PROFILE).replace("0.0009", "1e999"),
            "numbers must be finite, got one too large for 64 bits",
        ),
        (json.dumps(PROFILE)[:-1] + ', "name": "again"}', "field 'name' stands twice"),
    ],
)
def test_what_is_no_such_json_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"profile\.json: {message}"):
        read_fusion_profile(write(tmp_path, text))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*absent\.json: No such file"):
        read_fusion_profile(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor_names": ()}, "tensors must hold at least one, got none"),
        ({"size_bytes": np.array([1], dtype=np.int64)}, "must have one entry for each of 2 tensors"),
        ({"backward_s": np.array([0.1, np.nan])}, "tensor 'b': backward_s must be finite and >= 0, got nan"),
        ({"size_bytes": np.array([-1, 1], dtype=np.int64)}, "tensor 'a': size_bytes must be finite and >= 0, got -1"),
        ({"forward_s": float("inf")}, "forward_s must be finite and >= 0, got inf"),
        (
            {"modes": (Mode("a", FREE, encoded_bytes=(1.0,)),)},
            "mode 'a': encoded_bytes must have one entry for each of 2",
        ),
    ],
)
def test_profile_built_in_python_is_checked_too(change: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {
        "name": "x", "forward_s": 0.0, "tensor_names": ("a", "b"), "size_bytes": np.array([1, 2], dtype=np.int64),
        "backward_s": np.array([0.1, 0.2]), "modes": (plain_mode(FREE),),
    }  # fmt: skip
    with pytest.raises(InputError, match=message):
        FusionProfile(**{**fields, **change})
