"""Policies of recomputation of layers, as MONeT plans them. Without torch these tests are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.cli.main import main
from gapless.encodings.pipeline.cut.policies import curve_of
from gapless.encodings.pipeline.problem import problem
from gapless.profiles.pipelines.profile import read_pipeline_profile
from gapless.torch.calls import choices

pytestmark = pytest.mark.usefixtures("one_thread")


def test_plans_of_a_block_are_policies_of_its_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both blocks share their plans; the embedding gets tokens, and the head's loss isn't in a plan."""
    monkeypatch.setattr(choices, "_PEAKS", (1.0,))
    monkeypatch.setattr(choices, "_KEPT", (0.45, 0.0))
    path, model = tmp_path / "p.json", "train:gpt,layers=2,hidden=32,sequence=16,vocabulary=40"
    line = f"profile pipeline --model {model} --repeats 1 --policies -o {path}"
    assert main(line.split()) == 0
    profile = read_pipeline_profile(path)
    embedding, one, other, head = profile.policies
    assert embedding == head == ()
    assert [(each.name, each.kept_bytes) for each in one] == [(each.name, each.kept_bytes) for each in other]
    kept, again_s = [each.kept_bytes for each in one], [each.again_s for each in one]
    assert kept[0] < profile.stash_bytes[1]
    assert min(kept) == profile.boundary_bytes[0], "its input alone"
    assert again_s == sorted(again_s)
    assert again_s[0] > 0
    question = problem(profile, ranks=1, micro_batches=2, recomputation="curve")
    (curve,) = curve_of(question, (), splits=False)
    assert any(name.startswith("plan-") for policy in curve for name in policy.layers)
