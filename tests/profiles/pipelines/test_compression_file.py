"""Files of compression tables: what is written is read back, and what is broken is refused in one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.profiles.pipelines.compression import (
    compression_table_text,
    read_compression_table,
    write_compression_table,
)  # fmt: skip

TABLE: dict[str, Any] = {
    "format": "gapless.compression-errors", "version": 1, "name": "tiny", "source": "made up for a test",
    "depth": [0.25, 0.75],
    "modes": [{"name": "rank 4", "ratio": 0.1, "rank": 4, "encode_s_per_byte": 1e-11, "decode_s_per_byte": 1e-12,
               "hop_error": [0.02, 0.01], "reduce_error": [0.05, 0.04]}],
}  # fmt: skip


def write(folder: Path, data: object) -> Path:
    path = folder / "table.json"
    path.write_text(json.dumps(data))
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    table = read_compression_table(write(tmp_path, TABLE))
    mode = table.modes[0]
    assert (table.name, table.source, table.depth.tolist()) == ("tiny", "made up for a test", [0.25, 0.75])
    assert (mode.name, mode.ratio, mode.rank) == ("rank 4", 0.1, 4)
    assert (mode.encode_s_per_byte, mode.decode_s_per_byte) == (1e-11, 1e-12)
    assert (mode.hop_error.tolist(), mode.reduce_error.tolist()) == ([0.02, 0.01], [0.05, 0.04])
    path = tmp_path / "again.json"
    write_compression_table(path, table)
    assert compression_table_text(read_compression_table(path)) == path.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("source"), "field 'source' is missing"),
        (lambda d: d["modes"][0].update(ratio=1.5), "mode 'rank 4': ratio must be > 0 and <= 1, got 1.5"),
        (lambda d: d["modes"][0].update(hop_error=[0.1]), "mode 'rank 4': hop_error must have one entry for each of 2"),
        (lambda d: d["modes"][0].update(hop_error=[0, -1]), r"hop_error\[1\]: must be a number >= 0, got -1"),
        (lambda d: d["modes"][0].update(encode_s_per_byte=-1), "encode_s_per_byte: must be a number >= 0, got -1"),
        (lambda d: d.update(depth=[0.5, 0.5]), r"depth must be numbers in 0..1 that grow, got \[0.5, 0.5\]"),
        (lambda d: d.update(modes=[]), "modes must hold at least one, got none"),
        (lambda d: d["modes"].append(d["modes"][0]), "names of modes must differ, got 'rank 4' twice"),
    ],
)
def test_broken_tables_are_refused_in_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = copy.deepcopy(TABLE)
    change(data)
    path = write(tmp_path, data)
    with pytest.raises(InputError, match=message) as caught:
        read_compression_table(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
