"""What a shell user meets first: help with examples, guesses at names, tab completion, refusals of odd numbers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import commands, numeric_options

from gapless.cli.main import main

COMMANDS = commands()
PARSER = COMMANDS[()]
NETWORK = ["--ranks", "8", "--bandwidth", "10Gbps"]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refused command ends with."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, ""), captured
    assert len(captured.err.splitlines()) == 1, captured.err
    return captured.err


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_parses(path: tuple[str, ...]) -> None:
    text = COMMANDS[path].format_help()
    _, heading, examples = text.partition("\nexample")
    assert heading
    lines = [line.strip() for line in examples.replace("\\\n", " ").splitlines() if line.startswith("  gapless ")]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])[1:]
        assert tuple(words[: len(path)]) == path
        PARSER.parse_args(words)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chek", "plan.json"], "check"),
        (["solve", "tacl"], "taccl"),
        (["list", "topologys"], "topologies"),
        (["solve", "taccl", "--topology", "ndv2", "--sise", "1MB"], "--size"),
        (["solve", "taccl", "--topology", "ndv3", "--size", "1MB"], "ndv2"),
        (["solve", "taccl", "--topology", "toros:4", "--size", "1MB"], "torus"),
        (["solve", "taccl", "--topology", "ndv2", "--sketch", "ndv2-sk1", "--size", "1MB"], "ndv2-sk-1"),
        (["solve", "taccl", "--topology", "ndv2", "--collective", "allgater", "--size", "1MB"], "allgather"),
        (["solve", "taccl", "--topology", "ndv2", "--size", "1MB", "--solver", "higs"], "highs"),
        (["solve", "monet", "--graph", "resnet5", "--batch", "3", "--budget", "1GB"], "resnet50"),
        (["solve", "monet", "--graph", "resnet5", "--budget", "1GB"], "resnet50"),
        (["solve", "cupcake", "--profile", "resnet11"], "resnet101"),
        (["solve", "cupcake", "--profile", "resnet50", "--compressor", "powersg", *NETWORK], "powersgd"),
        (["solve", "cupcake", "--profile", "resnet50", "--method", "afine"], "affine"),
        (["solve", "bagpipe", "--trace", "criteo-lik", "--trainers", "2", "--batch-size", "4"], "criteo-like"),
    ],
)
def test_a_misspelt_name_is_guessed(capsys: pytest.CaptureFixture[str], words: list[str], meant: str) -> None:
    assert f"did you mean '{meant}'?" in refusal(capsys, *words)


ODD = [
    "x",
    "",
    "nan",
    "inf",
    "-inf",
    "-1",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "1 2",
    "½",
    "0x",
    "1\n2",
    "infx",
    "nanx",
    "-1x",
]


@pytest.mark.thorough(but=("'solve', 'taccl'",))
@pytest.mark.parametrize(("path", "option"), numeric_options(), ids=str)
def test_what_is_no_number_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], path: tuple[str, ...], option: str
) -> None:
    for value in ODD:
        with pytest.raises(SystemExit) as stop:
            PARSER.parse_args([*path, f"{option}={value}"])
        err = capsys.readouterr().err
        assert (stop.value.code, len(err.splitlines())) == (2, 1), err
        assert option in err


@pytest.mark.parametrize("shell", ["bash", "fish", "tcsh", "zsh"])
def test_completion_knows_commands_options_and_names(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("solve", "bagpipe", "path-slack", "ndv2-sk-1", "powersgd"):
        assert word in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_a_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "gapless.bash"
    script.write_text(
        capsys.readouterr().out + "COMP_WORDS=(gapless solve taccl --topology nd); COMP_CWORD=4\n"
        'command="$(complete -p gapless)"; command="${command#*-F }"; "${command%% *}" gapless nd --topology\n'
        'echo "${COMPREPLY[@]}"\n'
    )
    found = subprocess.run(["bash", "--norc", script], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert found.stdout.split() == ["ndv2"]
