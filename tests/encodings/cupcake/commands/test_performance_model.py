"""The performance model of what was measured, held against what ran. Without torch these tests are skipped."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.cli.main import main
from gapless.encodings.cupcake.commands.performance_model import whole_profile
from gapless.encodings.cupcake.commands.profiling import Measurement
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.gradients.ddp_model import DdpModel
from gapless.profiles.gradients.fusion import Costs, Fusion
from gapless.torch.ddp.measuring import Gradients, HookTimes

NETWORK = FlatNetwork(4, 1e9, 1e-4)
SHAPES = ((1000, 1000), (1000,), (2000, 1000))
GRADIENTS = Gradients(("c", "b", "a"), SHAPES, (4_000_000, 4_000, 8_000_000), 0.01, (0.02, 0.01, 0.03), 0.1)
TIMES = [
    HookTimes(mode, 0, 2, encode_s, 0.5, decode_s, between_s, 0.1)
    for mode, encode_s, decode_s, between_s in (
        ("plain", 0.0, 0.0, 0.0), ("signsgd", 0.006, 0.008, 0.0), ("powersgd:2", 0.002, 0.001, 0.003),
    )
]  # fmt: skip
BYTES = 12_004_000


def test_the_model_takes_what_was_measured_of_all_gradients_at_once() -> None:
    profile, (signs, factors) = whole_profile(Measurement("three", GRADIENTS, TIMES, "here"), NETWORK)
    model = DdpModel(profile.total_bytes, float(profile.backward_s.sum()), NETWORK)
    assert model.compressed_s(signs) == pytest.approx(0.06 + 0.014 + 3 * (1e-4 + BYTES / 32 / 1e9))
    sent = 4 * (2 * 2000 + 1000 + 2 * 3000)
    assert model.compressed_s(factors) == pytest.approx(0.06 + 0.006 + 2 * 3 * 1e-4 + 2 * 3 / 4 * sent / 1e9)


def test_the_wire_takes_as_many_messages_as_a_mode_has() -> None:
    profile, compressors = whole_profile(Measurement("three", GRADIENTS, TIMES, "here"), NETWORK)
    np.testing.assert_array_equal(profile.backward_s, GRADIENTS.gaps_s)
    costs, model = Costs.of(profile), DdpModel(BYTES, 0.06, NETWORK, slowdown=1)
    predicted_s = {"plain": model.uncompressed_s(), **{each.name: model.compressed_s(each) for each in compressors}}
    assert list(predicted_s) == list(profile.mode_names)
    for mode, model_s in predicted_s.items():
        more_s = (method_of(mode).messages - 1) * 6e-4  # the latency of an all-reduce
        assert costs.step_s(Fusion.uniform([3], mode)) - 0.01 == pytest.approx(model_s + more_s), mode


@pytest.mark.thorough
def test_predictions_are_held_against_steps_that_ran(capsys: pytest.CaptureFixture[str]) -> None:
    """Computation is emulated too, so that what differs is how parts overlap."""
    command = [
        "validate", "performance-model", "--model", "train:net,width=8", "--ranks", "2", "--bandwidth", "20Mbps",
        "--bucket", "20KB", "--hooks", "signsgd,topk", "--repeats", "3", "--warm-up", "3", "--emulate", "step",
        "--dilation", "2", "--json", "--quiet",
    ]  # fmt: skip
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    (setting,) = found["settings"]
    assert [row["mode"] for row in setting["rows"]] == ["plain", "signsgd", "topk"]
    assert (found["gamma"], found["compared"]) == (1.0, 2)
    for row in setting["rows"]:
        assert row["is_as_planned"]
        assert row["least_s"] <= row["median_s"] <= row["most_s"]
        assert row["error"] == pytest.approx(abs(row["median_s"] / row["predicted_s"] - 1))
        assert row["median_s"] > 0.9 * setting["backward_s"]
