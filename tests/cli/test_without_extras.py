"""Where an extra is missing: each command that needs it says so in one line, and names it, before long work is done."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.installation.doctor import extras_for
from gapless.installation.extras import EXTRAS, install_line
from gapless.system import find_system, system_names

ROOT = Path(__file__).resolve().parents[2]

QUESTIONS = {
    "taccl.json": "solve taccl --topology ring:2 --collective allgather --size 1MB",
    "cupcake.json": "solve cupcake --profile resnet50",
    "pipeline.json": "solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 2 --micro-batches 2",
    "oktopk.json": "solve oktopk --indices uniform:elements=1000,steps=2 --ranks 2",
    "cache.json": "solve cache --profile synthetic:layers=2,heads=4 --cache 0.4x",
    "chai.json": "solve chai --profile small-lm --kv-saving 0.2",
    "fsdp.json": "solve fsdp --profile gpt:layers=2,hidden=64 --ranks 2 --bandwidth 1GB/s",
    "sharding.json": "solve sharding --instance drawn:nodes=5,choices=2",
}
GRID = '{"format": "gapless.sweep", "version": 1, "grid": [{"system": "cupcake", "profile": "resnet50"}]}'

MISSING = {
    "plot taccl.json -o x.svg": "plot",
    "report taccl.json -o x.html": "plot",
    "advise sparse --indices uniform:elements=1000,steps=2 --ranks 2 --plot x.svg": "plot",
    "advise compression --profile resnet50 --ranks 4 --plot=x.svg": "plot",
    "advise what-if --figure bandwidth --profile resnet50 --plot x.svg": "plot",
    "advise ranks --trace trace.npz --plot x.svg": "plot",
    "sweep monet --graph unet --budgets 0.8x -o curve --plot x.svg": "plot",
    "validate regimes --model train:net --epochs 4 --plot x.svg": "plot",
    "run cupcake --plan cupcake.json --model train:net --train 1 --plot x.svg": "plot",
    "validate selection --model train:net --plot x.svg": "plot",
    "validate sparse --model train:net --plan oktopk.json --plot x.svg": "plot",
    "sweep file grid.json -o out --engine ray": "ray",
    "sweep file grid.json -o out --engine=slurm": "slurm",
    "completion bash": "cli",
    "run bagpipe --trace zipf --trainers 2 --batch-size 64": "torch",
    "run cache --model some-folder --plan cache.json --text text.txt": "hf",
    "run chai --model some-folder --plan chai.json --text text.txt": "hf",
    "run chai-latency --model some-folder --plan chai.json": "hf",
    "run chai-requests --model some-folder --plan chai.json --text text.txt": "hf",
    "run cupcake --plan cupcake.json --model train:net": "torch",
    "run fsdp --plan fsdp.json --model train:gpt": "torch",
    "run monet --model train:small_gpt --budget 0.8x": "torch",
    "run oktopk --plan oktopk.json": "torch",
    "run pipeline --model train:gpt --ranks 2 --plan pipeline.json": "torch",
    "run ranks --plan ranks.json --model train:net": "torch",
    "run sharding --plan sharding.json": "torch",
    "run taccl --plan taccl.json": "torch",
    "profile cache --model hf:tiny-llama --calibration text.txt -o x.npz": "hf",
    "profile compression --model train:net -o x.npz": "torch",
    "profile compression-error --model train:gpt -o x.json": "torch",
    "profile compressors": "torch",
    "profile fsdp --model train:gpt -o x.json": "torch",
    "profile gradients --model train:net -o x.json": "torch",
    "profile heads --model hf:tiny-llama --calibration text.txt -o x.npz": "hf",
    "profile links -o x.json": "torch",
    "profile pipeline --model train:gpt -o x.json": "torch",
    "profile sparsity --model train:net -o x.npz": "torch",
    "validate ddp --model train:net --bandwidth 1Gbps": "torch",
    "validate performance-model --model train:net --bandwidth 1Gbps": "torch",
    "validate regimes --model train:net --epochs 4": "torch",
    "validate selection --model train:net": "torch",
    "validate sparse --model train:net --plan oktopk.json": "torch",
    "solve chai --profile small-lm --kv-saving 0.2 --swaps 2 --model some-folder --calibration text.txt": "hf",
}  # fmt: skip

SCRIPT = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import PathFinder

real = PathFinder.find_spec
hidden = {"matplotlib", "ray", "shtab", "submitit", "torch", "transformers"}
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in hidden else real(name, *rest)

from gapless.cli.main import main
found = []
for words in json.loads(sys.argv[1]):
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as stderr:
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
    found.append([code, stderr.getvalue()])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and stderr of each command, all in one process in which the libraries of extras can't be found."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "text.txt").write_text("Some text to measure on.\n" * 40)
    (folder / "grid.json").write_text(GRID)
    solving = [[*question.split(), "--quiet", "-o", name] for name, question in QUESTIONS.items()]
    asked = [*solving, *map(shlex.split, MISSING)]
    command = [sys.executable, "-c", SCRIPT, json.dumps(asked)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={"PYTHONPATH": str(ROOT)}, check=True
    )
    found = json.loads(done.stdout)
    assert [code for code, _ in found[: len(solving)]] == [0] * len(solving), found
    return dict(zip(MISSING, found[len(solving) :], strict=True))


@pytest.mark.parametrize("command", MISSING)
def test_one_line_names_the_extra_and_the_exit_code_is_that_of_bad_input(
    answers: dict[str, tuple[int, str]], command: str
) -> None:
    code, err = answers[command]
    assert (code, err.count("\n")) == (2, 1), err
    assert err.startswith("gapless: error: ")
    assert err.endswith(f"which is not installed; {install_line(MISSING[command])}\n")


@pytest.mark.parametrize("command", MISSING)
def test_the_doctor_proposes_the_same(command: str) -> None:
    assert MISSING[command] in extras_for(shlex.split(command))


def test_the_table_has_every_command_of_the_systems_that_needs_pytorch() -> None:
    tried = {tuple(command.split()[:2]) for command in MISSING}
    for system in map(find_system, system_names()):
        brought = {"run": system.runs, "profile": system.profiles, "validate": system.validations}
        assert {(word, command.name) for word, commands in brought.items() for command in commands} <= tried


def test_an_option_s_extra_is_one_that_is_declared() -> None:
    for system in map(find_system, system_names()):
        commands = (*system.advice, *system.sweeps, *system.runs, *system.profiles, *system.validations)
        fields = [*system.fields, *(field for command in commands for field in command.fields)]
        assert {field.extra for field in fields} <= {"", *EXTRAS}
