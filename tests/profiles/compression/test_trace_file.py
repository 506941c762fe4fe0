"""Compression traces: what is written is read, and what is wrong is one line that names file, field and value."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compression_traces import small_trace

from gapless.errors import InputError
from gapless.profiles.compression.trace import read_compression_trace, write_compression_trace


def test_what_is_written_is_read(tmp_path: Path) -> None:
    trace, path = small_trace(), tmp_path / "trace.npz"
    write_compression_trace(path, trace)
    read = read_compression_trace(path)
    for name, value in vars(trace).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(read, name), value)
        elif name in trace.__dataclass_fields__:
            assert getattr(read, name) == value
    again = tmp_path / "again.npz"
    write_compression_trace(again, read)
    assert again.read_bytes() == path.read_bytes()


def changed(path: Path, **changes: Any) -> None:
    """A file with other arrays; `meta`: changes of the text; None leaves out."""
    write_compression_trace(path, small_trace())
    with np.load(path) as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes())
    meta |= changes.pop("meta", {})
    arrays["meta"] = np.frombuffer(
        json.dumps({key: value for key, value in meta.items() if value is not None}).encode(), np.uint8
    )
    arrays |= changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"meta": {"format": "gapless.plan"}}, "meta: format: must be gapless.compression-trace"),
        ({"meta": {"version": 2}}, "version: must be"),
        ({"meta": {"shapes": None}}, "'shapes'|shapes"),
        ({"meta": {"shapes": [[3, 0]]}}, r"shapes\[0\]"),
        ({"meta": {"shapes": [3]}}, r"shapes\[0\]: must be a list of lengths"),
        ({"meta": {"layers": ["a", "b"]}}, "shapes must be 2, one a layer, got 5"),
        ({"meta": {"layers": [1]}}, "layers: must be a list of texts"),
        ({"meta": {"modes": ["powersgd:1", "powersgd:2", "rank:9"]}}, "mode: must be one of none"),
        ({"meta": {"modes": ["powersgd:1", "powersgd:2"]}}, r"error must have shape \(6, 5, 2\), got \(6, 5, 3\)"),
        ({"meta": {"forward_s": -1}}, "forward_s"),
        ({"meta": {"extra": 1}}, "extra"),
        (
            {"error": None},
            "array 'error' is missing in what must be a gapless.compression-trace, which",
        ),
        ({"steps": np.zeros(6, np.int64)}, "steps must be whole numbers >= 1"),
        ({"steps": np.ones(6)}, "steps: must hold whole numbers, got float64"),
        ({"norm": np.full((6, 5), np.nan)}, "norm must be finite and >= 0, got nan"),
        ({"norm": np.array([["a"] * 5] * 6)}, "norm: must hold numbers"),
        ({"steps": np.full(6, 2**50)}, r"must send at most 2\^53 bytes in all"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "trace.npz"
    changed(path, **changes)
    with pytest.raises(InputError, match=message) as caught:
        read_compression_trace(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    for content in (b"", b"no zip", b"PK\x03\x04", b"\x80\x04"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"trace\.npz: (not readable: .*a gapless\.compression-trace|is pickled)"):
            read_compression_trace(path)
    with pytest.raises(InputError, match=r"^cannot read .*missing\.npz: No such file or directory$"):
        read_compression_trace(tmp_path / "missing.npz")
    with pytest.raises(InputError, match=r"a compression trace is a \.npz file"):
        read_compression_trace(tmp_path / "trace.json")


def test_modes_may_be_left_out() -> None:
    trace = small_trace()
    less = trace.in_modes(["powersgd:4", "powersgd:1"])
    np.testing.assert_array_equal(less.error, trace.error[:, :, [2, 0]])
    np.testing.assert_array_equal(less.sent_bytes, trace.sent_bytes[:, [2, 0]])
    with pytest.raises(InputError, match="modes: must be one of powersgd:1"):
        trace.in_modes(["plain"])


def test_a_layer_of_no_length_is_named() -> None:
    with pytest.raises(InputError, match="layer 'head': lengths of a shape must be >= 1"):
        replace(small_trace(), shapes=((0, 3), (32,), (32, 48), (16,), (16, 3, 3, 3)))
