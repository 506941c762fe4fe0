"""One way in: Python and the command line give the same plan for the same question, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_training import chain

import gapless
from gapless.cli.main import main
from gapless.errors import InputError
from gapless.fields import Flag
from gapless.profiles.training.graph_file import write_training_graph
from gapless.system import find_system

Question = dict[str, str]

TRACE = {"trace": "zipf", "table_rows": "40,300", "examples": "64", "trainers": "2", "batch_size": "8"}
NETWORK = {"ranks": "8", "bandwidth": "10Gbps"}

QUESTIONS: dict[str, list[Question]] = {
    "taccl": [
        {"topology": "ring:4", "size": "1MB"},
        {"topology": "ring:4", "size": "1MB", "chunks": "2"},
        {"topology": "ring:4", "collective": "allreduce", "size": "1KB", "chunks": "1"},
        {"topology": "hypercube:2", "collective": "reducescatter", "size": "1MB", "chunks": "1", "seed": "3"},
        {"topology": "mesh:2x2", "collective": "broadcast", "size": "64KB", "root": "2", "chunks": "1"},
        {"topology": "ring:3", "collective": "alltoall", "size": "1MB", "chunks": "1"},
        {"topology": "ndv2", "nodes": "2", "sketch": "ndv2-sk-1", "collective": "allgather", "size": "1MB"},
        {"topology": "ring:5", "collective": "gather", "size": "5KB", "method": "milp", "chunks": "1"},
        {"topology": "ring:4", "collective": "scatter", "size": "1.5MB", "path_slack": "0.5", "gap": "0.1"},
        {"topology": "line:3", "collective": "sendrecv", "root": "0", "target": "2", "size": "1MB", "chunks": "4"},
    ],
    "monet": [
        {"graph": "chain.json", "budget": budget, "gap": "0"}
        for budget in ("0.5x", "0.7x", "0.8x", "0.9x", "1x", "1.2x", "2x", "2.5x", "20", "1KB")
    ],
    "cupcake": [
        {"profile": "resnet50"},
        {"profile": "resnet50", "method": "buckets"},
        {"profile": "resnet101"},
        {"profile": "bert-base", "method": "layer-wise"},
        {"profile": "gpt2"},
        {"profile": "vgg16", "method": "one-group"},
        {"profile": "vgg16", "method": "pareto"},
        {"profile": "resnet50", "compressor": "powersgd", **NETWORK},
        {"profile": "resnet101", "compressor": "dgc", **NETWORK, "latency": "5us"},
        {"profile": "bert-base", "compressor": "fp16", "topology": "ndv2", "device": "a100"},
    ],
    "bagpipe": [
        TRACE,
        {**TRACE, "batches": "3"},
        {**TRACE, "lookahead": "2"},
        {**TRACE, "ownership": "hash"},
        {**TRACE, "method": "contiguous"},
        {**TRACE, "method": "random", "seed": "3"},
        {**TRACE, "trace_seed": "5", "exponent": "1.2"},
        {**TRACE, "model": "deepfm", "dimension": "16", "latency": "10us"},
        {**TRACE, "objective": "fetches"},
        {**TRACE, "objective": "max-load", "cache_rows": "200"},
    ],
}


def content(path: Path) -> Any:
    """All that a plan file holds but how it was made."""
    if path.suffix == ".json":
        data = json.loads(path.read_text(encoding="utf-8"))
        return {name: json.dumps(section) for name, section in data.items() if name != "run"}
    with np.load(path) as archive:
        arrays = {name: archive[name].tobytes() for name in archive if name != "meta"}
        meta = json.loads(archive["meta"].tobytes())
    return arrays | {name: json.dumps(section) for name, section in meta.items() if name != "run"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("questions")
    write_training_graph(made / "chain.json", chain(6))
    return made


@pytest.mark.thorough("budget=0.5x", "budget=20 ", "path_slack", "ndv2")
@pytest.mark.parametrize(
    ("system", "question"),
    [(system, question) for system, questions in QUESTIONS.items() for question in questions],
    ids=lambda value: value if isinstance(value, str) else " ".join(f"{k}={v}" for k, v in value.items()),
)
def test_python_and_the_command_line_give_the_same_plan(
    system: str, question: Question, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    ending = find_system(system).ending
    shell, python = folder / f"shell{ending}", folder / f"python{ending}"
    words = [word for name, value in question.items() for word in (f"--{name.replace('_', '-')}", value)]
    shell.unlink(missing_ok=True)
    code = main(["solve", system, *words, "--threads", "1", "--quiet", "-o", str(shell)])
    result = getattr(gapless, system).solve(**question, threads="1")
    if code == 3:  # the same proof that there is none
        assert result.status is gapless.Status.INFEASIBLE
        assert not shell.exists()
        return
    assert code == 0
    result.save(python)
    assert content(shell) == content(python)


@pytest.mark.parametrize("system", QUESTIONS)
def test_there_are_ten_questions_of_each_system(system: str) -> None:
    assert len(QUESTIONS[system]) == 10


def test_values_of_python_mean_what_texts_mean() -> None:
    by_text = gapless.taccl.problem("ring:4", collective="allgather", size="1MB", chunks="2")
    by_value = gapless.taccl.problem(topology="ring:4", collective="allgather", size=1_000_000, chunks=2)
    assert by_text.description == by_value.description


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": 3, "size": "1MB"}, "topology: must be a text or a Topology, got int"),
        ({"topology": "ring:4", "size": [1]}, r"size: must be a whole number in 1\.\.\d+, got \[1\]"),
        ({"topology": "ring:4", "size": "1XB"}, "size: must be a number and a unit"),
        ({"topology": "ring:4", "sise": "1MB"}, "sise: is no argument of taccl; did you mean 'size'"),
        ({"topology": "ring:4", "size": "1MB", "chunks": 1.5}, "chunks: must be a whole number"),
        ({"topology": "ring:4", "size": "1MB", "gap": "much"}, "gap: must be a number >= 0, got 'much'"),
        ({"topology": "ring:4", "size": "1MB", "threads": None, "solver": 7}, "solver: must be a text, got 7"),
        ({"topology": "ring:4", "size": "1MB", "parameters": {"tries": 1}}, "parameters: 'tries' is no parameter"),
        ({"size": "1MB"}, "give `topology` NAME"),
    ],
)
def test_a_wrong_argument_is_an_input_error_that_names_it(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gapless.taccl.solve(**arguments)


def test_only_the_first_field_goes_by_place() -> None:
    with pytest.raises(InputError, match="topology: may stand first, and everything else goes by name"):
        gapless.taccl.problem("ring:4", "allgather")


def test_no_question_has_a_flag_that_the_command_line_cannot_turn_off() -> None:
    for name in QUESTIONS:
        assert not [field for field in find_system(name).fields if isinstance(field.kind, Flag) and field.default]
