"""A model on a mesh through the solver: never worse than published layouts that fit, and read back by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import gapless  # noqa: E402
from gapless.cli.main import main  # noqa: E402
from gapless.encodings.sharding.decision import ShardingDecision  # noqa: E402
from gapless.encodings.sharding.instances.parameter_memory import with_autoparallel  # noqa: E402
from gapless.encodings.sharding.parameters import Parameters  # noqa: E402
from gapless.encodings.sharding.problem import Problem, problem  # noqa: E402
from gapless.errors import InputError  # noqa: E402
from gapless.io.plan import read_plan  # noqa: E402
from gapless.methods import MethodChoice  # noqa: E402
from gapless.options import SolveOptions  # noqa: E402
from gapless.solution import StopReason  # noqa: E402

QUICK = Parameters(methods=MethodChoice(only=("descent",)))
FACTORY = '''
import torch

def mlp(width=16, layers=3):
    """Blocks of two products, a batch of eight."""
    torch.manual_seed(0)
    blocks = [
        torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.ReLU(), torch.nn.Linear(4 * width, width))
        for _ in range(layers)
    ]
    data = torch.randn(8, width)
    return torch.nn.Sequential(*blocks), data, torch.nn.functional.mse_loss, torch.randn(8, width)
'''


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("model") / "mine.py"
    file.write_text(FACTORY)
    return f"{file}:mlp"


@pytest.fixture(scope="module")
def asked(factory: str) -> Problem:
    return problem(model=factory, mesh="2x2", topology="dgx-h100", memory="1MB")


def _within(asked: Problem, memory_bytes: int, method: str = "best") -> Problem:
    return Problem(replace(asked.instance, usage_limit=memory_bytes), asked.model, method)


def test_a_plan_is_never_worse_than_a_published_layout_that_fits(asked: Problem) -> None:
    for memory_bytes in (10**6, 50_000):
        within = _within(asked, memory_bytes)
        result = gapless.solve(within, parameters=QUICK)
        objective, bound = result.solution.objective, result.solution.bound
        assert objective is not None
        assert within.published
        published = with_autoparallel(within, SolveOptions()).published
        assert all(objective <= known.cost for known in published)
        assert bound is None or bound <= objective
        rows = {row["name"]: row for row in result.details["baselines"]}
        assert set(rows) == {"ddp", "fsdp", "hsdp", "megatron", "megatron_fsdp", "autoparallel"}
    assert rows["fsdp"]["peak_bytes"] < 50_000 < rows["ddp"]["peak_bytes"]


def test_a_published_layout_is_taken_as_it_is_where_it_is_asked_for(asked: Problem) -> None:
    result = gapless.solve(_within(asked, 50_000, "fsdp"), parameters=QUICK)
    row = next(row for row in result.details["baselines"] if row["name"] == "fsdp")
    assert result.solution.objective == round(row["step_s"] * 1e9)
    assert max(result.report.peak_bytes) == row["peak_bytes"]
    assert result.decision.layouts.parameters["0.0.weight"] == "S0,S0"
    with pytest.raises(InputError, match=r"method: ddp needs .* a device, and memory is 50"):
        _within(asked, 50_000, "ddp")


def test_autoparallels_own_program_limits_parameters_alone(asked: Problem) -> None:
    offered: list[float] = []
    options = SolveOptions(on_plan=lambda cost, make: offered.append(cost))
    result = gapless.solve(_within(asked, 10**6, "autoparallel"), options)
    row = next(row for row in result.details["baselines"] if row["name"] == "autoparallel")
    assert result.solution.solver == "autoparallel"
    assert result.solution.objective == round(row["step_s"] * 1e9)
    assert offered == []  # by its question, others would be better
    model = asked.model
    assert model is not None
    held, whole = 0, 0
    for node, each in enumerate(model.layouts):
        if each and each[0].op == "parameter":
            usage, choice = asked.instance.usages[node], result.decision.choices[node]
            held, whole = held + usage[choice] / usage.max(), whole + 1
    assert held <= whole / 4 + 1e-6
    peak = row["peak_bytes"]
    with pytest.raises(InputError, match=r"method: autoparallel needs .* a device, and memory is"):
        gapless.solve(_within(asked, peak - 1, "autoparallel"))


def test_a_plan_of_autoparallel_that_does_not_fit_is_said_and_not_written(
    factory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    words = ["--model", factory, "--mesh", "2x2", "--topology", "dgx-h100", "--method", "autoparallel"]
    assert main(["solve", "sharding", *words, "--memory", "10KB", "-o", str(file), "--quiet"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not file.exists()


def test_equal_layers_share_layouts_unless_asked_otherwise(factory: str, asked: Problem) -> None:
    result = gapless.solve(asked, parameters=QUICK)
    layouts = result.decision.layouts.parameters
    assert layouts["1.0.weight"] == layouts["2.0.weight"]  # the first has no gradient of its input
    assert result.details["tied_nodes"] > 0
    free = problem(model=factory, mesh="2x2", topology="dgx-h100", unequal_layers=True)
    assert free.model is not None
    assert free.model.tied == 0


def test_a_plan_is_saved_with_its_layouts_and_checked_by_asking_again(factory: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    words = ["--model", factory, "--mesh", "2x2", "--topology", "dgx-h100", "--method", "megatron"]
    assert main(["solve", "sharding", *words, "-o", str(file), "--quiet"]) == 0
    saved = read_plan(file)
    layouts = ShardingDecision.of(saved).layouts
    assert layouts is not None
    assert layouts.parameters["2.2.weight"] == "R,S1"
    assert saved.problem["mesh"] == [2, 2]
    assert main(["check", str(file), "--quiet"]) == 0
    text = json.loads(file.read_text())
    text["decision"]["choices"][0] ^= 1
    file.write_text(json.dumps(text))
    assert main(["check", str(file), "--quiet"]) == 5


def test_what_is_lacking_or_too_much_is_said(factory: str) -> None:
    for fields, text in (
        ({"model": factory, "topology": "dgx-h100"}, "mesh: must be given with a model"),
        ({"model": factory, "mesh": "2x2"}, "topology: must be given with a model"),
        ({"model": factory, "instance": "drawn:nodes=4", "mesh": "2x2"}, "give it or a model, one of them"),
        ({}, "give it or a model, one of them"),
        ({"model": factory, "mesh": "4x4", "topology": "dgx-h100"}, "at most the 8 devices"),
        ({"instance": "drawn:nodes=4", "method": "ddp"}, "method: for ddp, there must be a model"),
    ):
        with pytest.raises(InputError, match=text):
            problem(**fields)


def test_a_machine_of_your_own_prices_collectives(factory: str, asked: Problem, tmp_path: Path) -> None:
    file = tmp_path / "slow.json"
    switch = {"ranks": [0, 1, 2, 3], "alpha_us": 10.0, "beta_us_per_mb": 1000.0}
    head = {"format": "gapless.topology", "version": 1, "name": "slow", "ranks_per_node": 4}
    file.write_text(json.dumps({**head, "switches": [switch]}))
    slow = problem(model=factory, mesh="2x2", topology_file=str(file), memory="1MB")
    fast_ns, slow_ns = ({each.name: each.cost for each in known.published} for known in (asked, slow))
    assert all(slow_ns[name] > fast_ns[name] for name in fast_ns)


def test_show_names_layouts_of_parameters_and_baselines(
    asked: Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gapless.solve(_within(asked, 10**6, "megatron"), parameters=QUICK).save(tmp_path / "plan.json")
    assert main(["show", str(tmp_path / "plan.json")]) == 0
    shown = capsys.readouterr().out
    assert "*.0.weight" in shown
    assert "R,S0" in shown
    assert "autoparallel" not in shown  # another method was asked for
    assert "megatron_fsdp" in shown


def test_show_says_which_baselines_need_more_memory(
    asked: Problem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gapless.solve(_within(asked, 50_000), parameters=QUICK).save(tmp_path / "plan.json")
    assert main(["show", str(tmp_path / "plan.json")]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.split()}
    assert lines["ddp"].endswith("above the memory")
    assert not lines["fsdp"].endswith("above the memory")


def test_a_published_layout_is_the_answer_where_presolve_takes_all_the_time(
    asked: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gapless.encodings.sharding.presolve.factors._ASKED_EVERY", 1)
    result = gapless.solve(asked, SolveOptions(time_limit_s=1e-6))
    assert result.solution.objective == min(each.cost for each in asked.published)
    assert (result.solution.stop_reason, result.valid) == (StopReason.TIME_LIMIT, True)
    result.save(tmp_path / "plan.json")
    assert main(["show", str(tmp_path / "plan.json")]) == 0
    assert StopReason.TIME_LIMIT.sentence in capsys.readouterr().out
