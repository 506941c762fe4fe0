"""Collective files: read by rank or by chunk, refused in one line, and kept in a plan's problem section."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import SolveOptions
from gapless.encodings.taccl import Chunked, Sketch
from gapless.errors import InputError
from gapless.io.formats.collective_file import collective_data, collective_of, read_collective
from gapless.ir.collective import COLLECTIVES, collective_by_name, divided
from gapless.topologies.files import load_topology

HEAD: dict[str, Any] = {"format": "gapless.collective", "version": 1, "name": "swap", "ranks": 2}
BY_RANK = {**HEAD, "inputs": [[0], [1]], "outputs": [[1], [0]]}
BY_CHUNK = {**HEAD, "chunks": [{"from": [0], "to": [1]}, {"from": [1], "to": [0]}]}
SHARED_SUM = {**HEAD, "name": "sum", "ranks": 3, "reduces": True, "chunks": [{"from": [0, 1, 2], "to": [0, 2]}]}


def written(tmp_path: Path, data: dict[str, Any]) -> Path:
    path = tmp_path / "own.json"
    path.write_text("// a collective\n" + json.dumps(data))
    return path


def test_both_ways_to_write_a_collective_say_the_same(tmp_path: Path) -> None:
    by_rank = read_collective(written(tmp_path, BY_RANK))
    assert by_rank == read_collective(written(tmp_path, BY_CHUNK))
    assert by_rank.destinations == ((1,), (0,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "gapless.plan"}, "own.json: format: must be gapless.collective"),
        ({"version": 2}, "own.json: version: must be 1, got 2"),
        ({"name": "allgather"}, "own.json: name: must be a name of its own"),
        ({"ranks": 1}, "own.json: ranks: must be a whole number in 2..65536, got 1"),
        ({"ranks": 10**30, "chunks": []}, "own.json: ranks: must be a whole number in 2..65536, got 1000"),
        ({"inputs": [[0]]}, "own.json: inputs: must be a list of chunks for each of the 2 ranks"),
        ({"inputs": [[0], [0]]}, r"own.json: swap: chunk 0 must be in the input of exactly one rank, got 2"),
        ({"inputs": [[0, 0], [1]]}, r"own.json: swap: inputs\[0\] must not hold a chunk twice"),
        ({"inputs": [[0], []]}, r"own.json: outputs\[0\]\[0\]: must be 0, got 1"),
        ({"inputs": [[], []], "outputs": [[], []]}, "own.json: inputs: must be at least one chunk"),
        ({"inputs": [[0], [10**12]]}, r"own.json: inputs\[1\]\[0\]: must be a whole number in 0..1"),
        ({"outputs": [["a"], [0]]}, r'own.json: outputs\[0\]\[0\]: must be a whole number in 0..1, got "a"'),
        ({"outputs": [[10**15], [0]]}, r"own.json: outputs\[0\]\[0\]: must be a whole number in 0..1"),
        ({"root": 0}, "own.json: field 'root' is unknown"),
        ({"chunks": []}, "own.json: inputs: must be absent where chunks is given"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_collective(written(tmp_path, {**BY_RANK, **change}))
    assert "\n" not in str(error.value)


def test_rank_out_of_range_is_named_by_its_chunk(tmp_path: Path) -> None:
    data = {**HEAD, "chunks": [{"from": [0], "to": [2]}]}
    with pytest.raises(InputError, match=r"own.json: chunks\[0\]: to\[0\]: must be a whole number in 0..1, got 2"):
        read_collective(written(tmp_path, data))


@pytest.mark.parametrize("data", [BY_CHUNK, SHARED_SUM], ids=["copies", "sums"])
def test_own_collective_is_solved_and_read_back_from_its_plan(tmp_path: Path, data: dict[str, Any]) -> None:
    collective = read_collective(written(tmp_path, data))
    problem = Chunked.of(load_topology("dgx2", 1), _wide(collective), 1_000_000, Sketch("parts", chunks_per_rank=2))
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.05))
    assert result.valid
    assert collective_of(json.loads(json.dumps(problem.description)), "plan") == problem.collective
    assert problem.collective == divided(_wide(collective), 2)


def _wide(collective: Any) -> Any:
    """The same on the 16 ranks of a DGX-2."""
    from dataclasses import replace

    idle = ((),) * (16 - collective.rank_count)
    return replace(collective, rank_count=16, inputs=collective.inputs + idle, outputs=collective.outputs + idle)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_problem_section_is_enough_for_every_named_collective(name: str) -> None:
    for ranks, parts in ((2, 1), (5, 2)):
        chunks = parts * ranks if name == "alltoall" else parts
        collective = collective_by_name(name, ranks, chunks)
        assert collective_of(collective_data(collective), "plan") == collective
