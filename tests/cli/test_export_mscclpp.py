"""`gapless export --format mscclpp`, and `check` of what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapless.cli.main import main


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ALLGATHER on two nodes."""
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    command = "solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB --quiet"
    assert main([*command.split(), "-o", str(path)]) == 0
    return path


def export(plan: Path, out: Path, *options: str) -> int:
    return main(["export", str(plan), "--format", "mscclpp", "-o", str(out), *options])


@pytest.mark.thorough("options0")
@pytest.mark.parametrize("options", [(), ("--placement", "in-place", "--instances", "2")])
def test_an_exported_plan_passes_its_own_check(capsys, plan, tmp_path, options):
    out = tmp_path / "out.json"
    assert export(plan, out, *options) == 0
    where = "in-place" if options else "out-of-place"
    assert f"allgather on 16 GPUs {where}, at most" in capsys.readouterr().out
    assert main(["check", str(out)]) == 0
    assert "allgather on 16 GPUs (MSCCL++ plan): valid, executed" in capsys.readouterr().out


def test_the_check_says_what_is_wrong_in_words_and_in_json(capsys, plan, tmp_path):
    out = tmp_path / "out.json"
    export(plan, out, "--max-bytes", "16MB")
    data = json.loads(out.read_text())
    assert data["max_message_size"] == 16_000_000
    ops = data["gpus"][3]["threadblocks"][0]["ops"]
    del ops[next(number for number, op in enumerate(ops) if op["name"] == "wait")]
    out.write_text(json.dumps(data))
    capsys.readouterr()
    assert main(["check", str(out), "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert found["valid"] is False
    assert found["collective"] == "allgather"
    assert any(each.startswith("gpu 3") for each in found["violations"])
    assert main(["check", str(out)]) == 5
    assert capsys.readouterr().out.splitlines()[-1].startswith("allgather on 16 GPUs (MSCCL++ plan): ")


@pytest.mark.thorough
def test_what_the_format_has_not_is_refused(capsys, plan, tmp_path):
    out = tmp_path / "out.json"
    assert export(plan, out, "--proto", "LL") == 2
    assert "--proto: MSCCL++ plans are written with Simple, got LL" in capsys.readouterr().err
    assert not out.exists()
    export(plan, out)
    assert main(["check", str(out), "--root", "1"]) == 2
    assert "--root: the collectives of MSCCL++ plans" in capsys.readouterr().err
    other = tmp_path / "broadcast.json"
    command = "solve taccl --topology ring:4 --collective broadcast --size 1MB --chunks 1 --quiet -o"
    assert main([*command.split(), str(other)]) == 0
    assert export(other, out) == 2
    message = "mscclpp: plans are written for allgather, allreduce, alltoall, reducescatter, got broadcast"
    assert message in capsys.readouterr().err


@pytest.mark.thorough("alltoall", "allreduce")
@pytest.mark.parametrize("collective", ["allreduce", "alltoall", "reducescatter"])
@pytest.mark.parametrize("placement", ["in-place", "out-of-place"])
def test_every_covered_collective_is_exported(tmp_path, collective, placement):
    path = tmp_path / "plan.json"
    command = f"solve taccl --topology ring:4 --collective {collective} --size 1MB --chunks 1 --quiet -o {path}"
    assert main(command.split()) == 0
    assert export(path, tmp_path / "out.json", "--placement", placement) == 0
    assert main(["check", str(tmp_path / "out.json"), "--quiet"]) == 0
