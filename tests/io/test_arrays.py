"""Arrays: what is read is what NumPy wrote, whole or piece by piece; limits follow size and environment."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.io.arrays import load_arrays, open_archive
from gapless.io.reading import VARIABLE, Limits

WHAT = "a file of a test"
SAMPLES = {
    "empty": np.empty((0, 3)),
    "single": np.array(3.5),
    "fortran": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "big-endian": np.arange(5, dtype=">i2"),
    "texts": np.array(["a", "\u00e9\u00e9"]),
    "truth": np.array([[True], [False]]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_is_read_is_what_numpy_wrote(save: object, tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    save(path, **SAMPLES)  # type: ignore[operator]
    found = load_arrays(path, list(SAMPLES), what=WHAT)
    for name, array in SAMPLES.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize("readers", [3, 300])
def test_readers_go_on_from_their_entries(readers: int, tmp_path: Path) -> None:
    """Few of them inflate what lies before them, many share the whole array."""
    path, values = tmp_path / "v.npz", np.arange(6000)
    np.savez_compressed(path, v=values)
    with open_archive(path) as archive, ExitStack() as streams:
        starts = [k * (6000 // readers) for k in range(readers)]
        found = archive.readers("v", starts, streams)
        assert [read(2).tolist() for read in found] == [[start, start + 1] for start in starts]
        assert found[-1](5).tolist() == values[starts[-1] + 2 : starts[-1] + 7].tolist()
        assert len(found[-1](6000)) == 6000 - starts[-1] - 7


def test_a_variable_allows_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, v=np.zeros(2**27, dtype=np.uint8))
    with pytest.raises(InputError, match=rf"zeros.npz: its arrays must take at most 33.55 MB .* {VARIABLE}=4GB"):
        load_arrays(path, ["v"], what=WHAT)
    monkeypatch.setenv(VARIABLE, "2GiB")
    assert not load_arrays(path, ["v"], what=WHAT)["v"].any()
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(InputError, match=f"{VARIABLE}: must be a number and a unit"):
        load_arrays(path, ["v"], what=WHAT)


def test_a_large_file_may_take_more() -> None:
    """A run of an epoch has 386 MB; its windows have less than 64 MiB each, inflated to about four times the file."""
    small, large = Limits.of("small", 10**7), Limits.of("large", 386 * 10**6)
    large.check_inflated("windows", 10 * 386 * 10**6)
    large.check_held("windows", 6 * 2**26)
    assert small.held_bytes < large.held_bytes
    with pytest.raises(InputError, match="small: windows must take at most 115 MB of memory"):
        small.check_held("windows", 2**27)
