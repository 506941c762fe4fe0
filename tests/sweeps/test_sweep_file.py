"""Sweep files: TOML and JSON say the same, and what is wrong is said in one line that names the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapless.errors import InputError
from gapless.sweeps import read_instances
from gapless.sweeps.sweep_file import read_sweep_file

TOML = """
format = "gapless.sweep"
version = 1

[[grid]]
system = "monet"
graph = "vgg16"
batch = [64, 128]
budget = ["0.6x", "0.8x"]
gap = 0.05

[[grid]]
system = "cupcake"
profile = "resnet50"
"""
GRIDS = [
    {"system": "monet", "graph": "vgg16", "batch": [64, 128], "budget": ["0.6x", "0.8x"], "gap": 0.05},
    {"system": "cupcake", "profile": "resnet50"},
]


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    text = json.dumps({"format": "gapless.sweep", "version": 1, "grid": GRIDS}, indent=1)
    (tmp_path / "a.json").write_text(f"// two systems\n{text}")
    toml, plain = (read_instances(tmp_path / name) for name in ("a.toml", "a.json"))
    assert [each.hash for each in toml] == [each.hash for each in plain]
    assert [dict(each.values) for each in toml] == [dict(each.values) for each in plain]


def test_lists_are_combined_and_the_last_one_runs_fastest(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    monet, cupcake = read_sweep_file(tmp_path / "a.toml")
    assert (monet.count, monet.swept, cupcake.count, cupcake.swept) == (4, ("batch", "budget"), 1, ())
    assert [each.title for each in read_instances(tmp_path / "a.toml")] == [
        "monet batch=64 budget=0.6x",
        "monet batch=64 budget=0.8x",
        "monet batch=128 budget=0.6x",
        "monet batch=128 budget=0.8x",
        "cupcake",
    ]


HEAD = 'format = "gapless.sweep"\nversion = 1\n'
MONET = f'{HEAD}[[grid]]\nsystem = "monet"\ngraph = "vgg16"\nbatch = 64\n'
BAD = [
    ("", "a.toml: field 'format' is missing"),
    ("format = 3", "a.toml: format: must be gapless.sweep, got 3"),
    (HEAD.replace("1", "2"), "a.toml: version: must be 1, got 2"),
    (HEAD, "a.toml: field 'grid' is missing"),
    (f"{HEAD}grid = []", "a.toml: grid: must be a list of at least one grid ([[grid]] in TOML), got []"),
    (f'{HEAD}[grid]\nsystem = "monet"', "a.toml: grid: must be a list of at least one grid ([[grid]] in TOML), got"),
    (f'{MONET}budget = "1x"\n[x]\ny = 1', "a.toml: field 'x' is unknown; known are format, grid, version"),
    (f'{HEAD}[[grid]]\nsystem = "monte"', "a.toml: grid[0]: system: must be one of bagpipe, "),
    (MONET, "a.toml: grid[0]: field 'budget' is missing: every monet instance needs it"),
    (f'{MONET}budgt = "1x"', "a.toml: grid[0]: field 'budgt' is unknown; did you mean 'budget'?"),
    (f'{MONET}budget = "1x"\nthreads = 3', "grid[0]: field 'threads' is unknown; it is said by --threads"),
    (f'{MONET}budget = "1x"\nquiet = true', "field 'quiet' is unknown; known are the options of `gapless solve mon"),
    (f"{MONET}budget = 3", "a.toml: grid[0]: budget: must be a text, or a list of texts, got 3"),
    (f'{MONET}budget = ["1x", 3]', "a.toml: grid[0]: budget: must be a text, or a list of texts, got 3"),
    (f"{MONET}budget = []", "a.toml: grid[0]: budget: must be a value, or a list of at least one, got []"),
    (f'{MONET}budget = "1x"\ngap = "x"', 'a.toml: grid[0]: gap: must be a number, or a list of numbers, got "x"'),
    (f'{MONET}budget = "1x"\ngap = true', "a.toml: grid[0]: gap: must be a number, or a list of numbers, got true"),
    (f'{MONET}budget = "1x"\ngap = inf', "a.toml: grid[0]: gap: must be a number, or a list of numbers, got Infinity"),
    (f'{MONET}budget = "1x"\ngap = -1', "a.toml: grid[0]: gap: must be a number >= 0 and <= 1, got -1"),
    (f'{MONET}budget = "1x"\nseed = 1.5', "a.toml: grid[0]: seed: must be a whole number in 0..2147483647, got 1.5"),
    (f'{MONET}budget = "-1x"', "a.toml: grid[0]: budget: must be a number > 0"),
    (f'{MONET}budget = "1x"\nobjective = "tim"', "a.toml: grid[0]: objective: must be one of time, energy, got 'tim'"),
    (f'{MONET}budget = "a\\u0000b"', "a.toml: grid[0]: budget: must be a text"),
    (f'{MONET}budget = "1x"\nseed = {list(range(200_000))}', "must be at most 100000 instances, got 200000; split"),
    ("x = [", "a.toml: not TOML: "),
    (f"x = {'9' * 5000}", "a.toml: not TOML: "),
    (f"x = {'[' * 3000}", "a.toml: not readable: nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_what_is_wrong_is_said_in_one_line_with_file_and_field(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InputError) as error:
        read_instances(tmp_path / "a.toml")
    said = str(error.value).removeprefix(f"{tmp_path}/")
    assert message in said
    assert len(said.splitlines()) == 1


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"x = '\xe9'")
    with pytest.raises(InputError, match=r"latin\.toml: must be a UTF-8 text file, got byte 0xe9"):
        read_sweep_file(tmp_path / "latin.toml")
    with pytest.raises(InputError, match=r"cannot read .*none\.toml: No such file"):
        read_sweep_file(tmp_path / "none.toml")
