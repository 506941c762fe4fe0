"""Loops say when they are compiled, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless.methods.compiled import compilation_reported, compiled

numba = pytest.importorskip("numba", reason="needs the extra `fast`")


def test_a_loop_that_is_compiled_says_so_once_and_where_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    lines: list[str] = []
    for _ in range(2):  # the second time it is at hand

        @compiled
        def doubled(number: int) -> int:
            return 2 * number

        with compilation_reported(lines.append):
            assert [doubled(2), doubled(3)] == [4, 6]
        assert len(lines) == 1
    compiled(lambda number: number + 1)(1)  # nobody asks here
    assert len(lines) == 1
    assert lines[0].startswith(f"compiling loops (once; kept in {tmp_path}")
