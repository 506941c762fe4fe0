"""`gapless explain-selection`, on files that `gapless export` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapless.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of ALLGATHER on a ring of four, below and above 1 MB."""
    folder = tmp_path_factory.mktemp("files")
    assert main(f"solve taccl --topology ring:4 --size 1MB --quiet -o {folder}/plan.json".split()) == 0
    for name, bounds in (("small", "--max-bytes 1MB"), ("large", "--min-bytes 1MB")):
        command = (
            f"export {folder}/plan.json --format taccl-ef --placement out-of-place -o {folder}/{name}.xml {bounds}"
        )
        assert main(command.split()) == 0
    return folder


def explain(folder: Path, *options: str) -> int:
    files = [str(folder / "small.xml"), str(folder / "large.xml")]
    return main(["explain-selection", *files, "--collective", "allgather", "--ranks", "4", *options])


def test_the_file_that_is_taken_comes_first_and_each_other_with_its_reason(capsys, folder):
    assert explain(folder, "--runtime", "original", "--size", "4MiB") == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"{folder}/large.xml: taken"
    assert second == f"{folder}/small.xml: not taken, maxBytes is 1000000 (excluded), the call has 4194304 [size]"
    assert "NCCL_MIN_NCHANNELS=" in third


def test_where_nothing_is_taken_the_exit_code_is_5_and_the_json_says_why(capsys, folder):
    assert explain(folder, "--runtime", "executor", "--size", "4MiB", "--in-place", "--json") == 5
    data = json.loads(capsys.readouterr().out)
    assert data["taken"] is None
    assert [Path(row["file"]).name for row in data["files"]] == ["large.xml", "small.xml"]
    assert [row["rule"] for row in data["files"]] == ["placement", "placement"]
    assert explain(folder, "--runtime", "executor", "--size", "4MiB", "--in-place") == 5
    assert "NCCL's own algorithm runs" in capsys.readouterr().out


def test_a_file_that_does_not_load_is_named(capsys, folder, tmp_path):
    broken = tmp_path / "a.xml"
    broken.write_text("<algo>\t</algo>")
    arguments = ["explain-selection", str(broken), str(folder / "small.xml"), "--collective", "allgather"]
    arguments += ["--ranks", "4", "--size", "64KiB", "--runtime"]
    assert main([*arguments, "executor"]) == 5
    assert f"the runtime stops at {broken}" in capsys.readouterr().out
    assert main([*arguments, "original"]) == 0
    assert f"{folder}/small.xml: taken" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--runtime", "original", "--size", "1000001"), "--size: must be a multiple of 4 x 4 bytes of float32"),
        (("--runtime", "original", "--size", "1MB", "--collective", "allsum"), "--collective: must be one of"),
    ],
)
def test_a_call_that_is_none_is_refused_in_one_line(capsys, folder, options, message):
    assert explain(folder, *options) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
