"""A training step's estimate: computed by hand, from tables of sweeps, and refused where nothing was swept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gapless.cli.main import main
from gapless.encodings.taccl.sweep.curves import read_curves
from gapless.encodings.taccl.sweep.step import estimate_step
from gapless.errors import InputError
from gapless.profiles.devices import ARITHMETIC_EFFICIENCY, named_device
from gapless.profiles.steps.profile import Exchange, Layer, TrainingStep

SECOND = ARITHMETIC_EFFICIENCY * named_device("v100").flops_per_s
"""The arithmetic of a second."""


def swept(folder: Path, collective: str = "allreduce", ranks: int = 4) -> Path:
    """A table in which a plan takes a second for each kilobyte, a ring twice and a tree three times as long."""
    rows = [
        {
            "size_bytes": size, "makespan_s": size / 1000,
            "tried": {
                f"{name} (one)": {"is_baseline": True, "instances": 1, "makespan_s": factor * size / 1000}
                for name, factor in {"ring": 2, "double-binary-tree": 3, "halving-doubling": 0.5}.items()
            },
        }
        for size in (1000, 3000)
    ]  # fmt: skip
    head = {"format": "gapless.size-sweep", "version": 1, "collective": collective, "topology": "four", "ranks": ranks}
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({**head, "rows": rows}))
    return folder


def step(*layers: Layer, bucket_bytes: int = 1000) -> TrainingStep:
    return TrainingStep("tiny", "", "v100", bucket_bytes, False, layers)


PLAIN = Layer("plain", 1, SECOND, (), (), (2000,))


def test_buckets_are_sent_beside_the_backward_pass_one_after_the_other(tmp_path: Path) -> None:
    curves = {"allreduce": read_curves(swept(tmp_path / "a"))}
    found = estimate_step(step(replace(PLAIN, count=2)), 1, curves)
    # Forward 0 to 2; backward to 4 and 6; sums from 4 to 6 and 6 to 8; rings to 8 and 12, trees to 10 and 16.
    assert found.compute_s == pytest.approx(6)
    assert found.step_s == pytest.approx({"plan": 8, "ring": 12, "tree": 16})
    assert found.network_s == pytest.approx({"plan": 4, "ring": 8, "tree": 12})
    assert found.speedup == pytest.approx({"ring": 1.5, "tree": 2})


def test_a_layer_waits_for_its_own_collectives(tmp_path: Path) -> None:
    curves = {"allreduce": read_curves(swept(tmp_path / "a"))}
    waited = Exchange("allreduce", 1500, is_each=True)
    found = estimate_step(step(Layer("split", 1, SECOND, (waited,), (waited,), ())), 2, curves)
    assert found.step_s["plan"] == pytest.approx(2 + 3 + 4 + 3)  # 3000 bytes for two samples


def test_a_collective_that_is_waited_for_goes_behind_buckets_that_are_sent(tmp_path: Path) -> None:
    curves = {"allreduce": read_curves(swept(tmp_path / "a"))}
    waited = Layer("split", 1, 0.0, (), (Exchange("allreduce", 1000, is_each=False),), ())
    found = estimate_step(step(waited, replace(PLAIN, gradient_bytes=(3000,))), 1, curves)
    assert found.step_s["plan"] == pytest.approx(3 + 3 + 1)


def test_between_sizes_times_lie_on_lines_and_beyond_them_a_size_is_refused(tmp_path: Path) -> None:
    curves = read_curves(swept(tmp_path / "a"))
    assert curves.time_s("plan", 2500) == pytest.approx(2.5)
    for size in (999, 3001):
        with pytest.raises(InputError, match="is known from 1 KB to 3 KB, the step needs"):
            curves.time_s("plan", size)


def test_a_collective_that_was_not_swept_is_named(tmp_path: Path) -> None:
    curves = {"alltoall": read_curves(swept(tmp_path / "a", "alltoall"))}
    with pytest.raises(InputError, match="must hold one of allreduce, which tiny needs, got alltoall"):
        estimate_step(step(PLAIN), 1, curves)


def test_sweeps_of_other_ranks_do_not_go_together(tmp_path: Path) -> None:
    both = Layer("both", 1, SECOND, (Exchange("alltoall", 1000, is_each=False),), (), (2000,))
    folders = [swept(tmp_path / "a"), swept(tmp_path / "b", "alltoall", 8)]
    with pytest.raises(InputError, match="one number of ranks, got 4, 8"):
        estimate_step(step(both), 1, {one.collective: one for one in map(read_curves, folders)})


def test_the_command_sweeps_what_a_step_needs_and_takes_the_sweep_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = tmp_path / "step.json", tmp_path / "swept"
    layer = {"name": "block", "count": 2, "forward_flops": 1e6, "gradient_bytes": [4000]}
    head = {"format": "gapless.training-step", "version": 1, "name": "tiny", "device": "v100", "bucket_bytes": 4000}
    path.write_text(json.dumps({**head, "layers": [layer]}))
    words = ["advise", "step", "--step", str(path), "--json", "--quiet"]
    assert main([*words, "--topology", "ring:4", "--time-limit", "20", "-o", str(folder)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in first["rows"]] == [1, 2, 4, 8]
    assert all(ratio > 1 - 1e-9 for row in first["rows"] for ratio in row["speedup"].values())
    assert main([*words, "--sweep", str(folder / "allreduce")]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == first["rows"]
