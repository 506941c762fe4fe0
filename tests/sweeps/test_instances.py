"""Instances: their hash is that of their content; what `solve` would refuse is refused before anything is solved."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import commands

from gapless.errors import InputError
from gapless.profiles.training.graph_file import write_training_graph
from gapless.profiles.training.networks import build
from gapless.sweeps import instances as module
from gapless.sweeps import read_instances
from gapless.sweeps.sweep_file import sweep_fields
from gapless.system import system_names

FileOf = Callable[..., Path]


def hashes(path: Path) -> list[str]:
    return [instance.hash for instance in read_instances(path)]


def test_equal_content_is_one_instance_however_it_is_spelt(file_of: FileOf) -> None:
    ring = {"system": "taccl", "topology": "ring:4"}
    assert len(hashes(file_of({**ring, "size": ["1MB", "1000KB", "1MiB"]}))) == 2
    (plain,) = hashes(file_of({**ring, "size": "1MB"}))
    assert hashes(file_of({**ring, "size": "1MB", "seed": 0, "method": "auto"})) == [plain]  # the defaults
    assert hashes(file_of({**ring, "size": "1MB", "seed": 1})) != [plain]
    assert hashes(file_of({**ring, "size": "1MB"}, {**ring, "size": "1MB"})) == [plain]


def test_another_version_gives_other_hashes(file_of: FileOf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of({"system": "cupcake", "profile": "resnet50"})
    before = hashes(path)
    monkeypatch.setattr(module, "__version__", "99")
    assert hashes(path) != before


def test_a_changed_file_gives_another_hash_and_a_touched_one_does_not(small: Path) -> None:
    before = hashes(small)
    graph = Path("chain.json")
    graph.write_text(graph.read_text())
    assert hashes(small) == before
    graph.write_text(graph.read_text() + " ")
    after = hashes(small)
    assert (after[:2], after[2:] == before[2:]) == (before[:2], False)


def test_a_file_that_changes_between_is_noticed(small: Path) -> None:
    instance = read_instances(small)[2]
    instance.check_files()
    write_training_graph("chain.json", build("vgg16", 1))
    with pytest.raises(InputError, match=r"grid\[1\] \(budget=2\.5x\): a file that it names has changed"):
        instance.check_files()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (
            {"system": "monet", "graph": ["vgg16"], "budget": "1x"},
            r"\(graph=vgg16\): batch: must be given: vgg16 is",
        ),
        ({"system": "monet", "graph": "none.json", "budget": "1x"}, r"grid\[0\]: cannot read none\.json"),
        ({"system": "taccl", "topology": "ndv3", "size": "1MB"}, "did you mean 'ndv2'"),
        ({"system": "taccl", "topology": "ring:4", "size": "1MB", "solver": "higs"}, "did you mean 'highs'"),
        ({"system": "cupcake", "profile": "resnet50", "ranks": 8}, "ranks: goes with compressor"),
        ({"system": "bagpipe", "trace": "zip", "trainers": 2, "batch_size": 4}, "did you mean 'zipf'"),
    ],
)
def test_what_solve_would_refuse_is_refused_with_its_place(
    file_of: FileOf, grid: dict[str, object], message: str
) -> None:
    (instance,) = read_instances(file_of(grid))
    with pytest.raises(InputError, match=message) as error:
        instance.check()
    assert "small.json: grid[0]" in str(error.value)


@pytest.mark.parametrize("system", system_names())
def test_fields_are_the_options_of_solve_but_for_what_is_done_with_a_plan(system: str) -> None:
    options = {action.dest for action in commands()["solve", system]._actions}  # noqa: SLF001
    assert set(sweep_fields(system)) <= options
    left_out = options - set(sweep_fields(system))
    lowering = {"instances", "per_rank", "proto", "placement", "runtime", "min_bytes", "max_bytes", "max_scratch"}
    lowering |= {"sm_count", "fuse"}
    rest = {"help", "output", "xml", "write_model", "threads", "json", "quiet"}
    assert left_out <= (rest | lowering if system == "taccl" else rest)


def test_the_command_of_an_instance_asks_the_same_question(file_of: FileOf) -> None:
    grid = {"system": "bagpipe", "trace": "-odd.csv", "trainers": 2, "batch_size": 4}
    (instance,) = read_instances(file_of(grid))
    words = shlex.split(instance.command)
    assert words[:4] == ["gapless", "solve", "bagpipe", "--trace=-odd.csv"]
    asked = commands()["solve", "bagpipe"].parse_args(words[3:])
    assert (asked.trace, asked.trainers, asked.batch_size) == ("-odd.csv", 2, 4)
