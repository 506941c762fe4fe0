"""The examples of every help text run as they stand, and end near the optimum.

Those of `run`, `profile`, `validate`, `tune` and `bench` measure, train models or repeat the documentation's tables:
they are not run here.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from calls import exit_code
from compression_traces import small_trace
from machine_texts import matrix_text

from gapless.cli.commands import build_parser
from gapless.profiles.cache.named import find_cache_profile
from gapless.profiles.cache.profile_file import write_cache_profile
from gapless.profiles.compression.trace import write_compression_trace
from gapless.profiles.sparsity.index_file import find_index_sets, write_index_sets

MOST_GAP = 0.15
ELSEWHERE = ("run", "profile", "validate", "bench", "torchrun", "tune")
"""Tested with the commands that they are examples of."""
OF_SWEEPS = ("sweep", "plot curve/summary.json", "plot results/summary.json")
"""They need files that take minutes to make, and are tested with the sweeps."""
LONG = ("solve bagpipe", "solve cupcake --profile bert-base", "solve monet", "solve oktopk", "advise", "solve taccl",
        "solve chai --profile heads.npz", "doctor", "challenge plan.json --time-limit",
        "solve fsdp --profile llama-8b --ranks 64 --bandwidth",
        "solve cache --profile synthetic:layers=32")  # fmt: skip
"""More than about a second of CPU time."""


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to walk them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                yield from parsers(inner)


def examples() -> list[str]:
    """Every command line below the word "example" of a help text, without the program's name, once."""
    found: dict[str, None] = {}
    for parser in parsers(build_parser()):
        _, _, below = (parser.epilog or "").replace("\\\n", " ").partition("example")
        for line in below.splitlines()[1:]:
            if line.startswith(("  gapless ", "  torchrun ")):
                found[" ".join(line.split()).removeprefix("gapless ")] = None
    return list(found)


def cases() -> list[Any]:
    here = [each for each in examples() if not each.startswith((*ELSEWHERE, *OF_SWEEPS)) and ">" not in each]
    thorough = [pytest.mark.thorough]
    return [pytest.param(each, marks=thorough if each.startswith(LONG) else (), id=each[:60]) for each in here]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    with as_file(files("gapless.profiles.heads") / "small-lm.npz") as path:
        shutil.copy(path, folder / "heads.npz")
    write_cache_profile(folder / "cache.npz", find_cache_profile("synthetic:layers=6,heads=8,dimension=128"))
    write_index_sets(folder / "grads.npz", find_index_sets("clustered:steps=8", 16))
    write_compression_trace(folder / "trace.npz", small_trace())
    rows = ["X NV2 NV1 NV1", "NV2 X NV1 NV1", "NV1 NV1 X NV2", "NV1 NV1 NV2 X"]
    (folder / "matrix.txt").write_text(matrix_text([f"{row} SYS" for row in rows], nics=1))
    rows = [f"{number % 7},{number % 5}" for number in range(20_000)]
    (folder / "clicks.csv").write_text("\n".join(["user,item", *rows]))
    plan = (
        "solve",
        "taccl",
        "--topology",
        "ndv2",
        "--size",
        "1kB",
        "--time-limit",
        "1",
        "-o",
        str(folder / "plan.json"),
    )
    for name, size in (("small.xml", "1kB"), ("large.xml", "1MB"), ("allgather.xml", "1MB")):
        assert exit_code(*plan, "--size", size, "--xml", str(folder / name), "--quiet") == 0
    shutil.copy(folder / "plan.json", folder / "default.json")
    return folder


@pytest.mark.parametrize("example", cases())
def test_an_example_runs_as_it_stands(
    example: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(example)
    code = exit_code(*words, *(["--json", "--quiet"] if words[0] == "solve" else []))
    ended = capsys.readouterr()
    # A challenge that finds something better than the plan at hand has done what it is for.
    assert code in ((0, 5) if example.startswith("challenge") else (0,)), ended.err
    if words[0] == "solve":
        gap = json.loads(ended.out)["gap"]
        assert gap is None or gap < MOST_GAP


def test_every_help_text_has_an_example() -> None:
    without = {parser.prog for parser in parsers(build_parser()) if "example" not in (parser.epilog or "")}
    assert without <= {"gapless completion"}
