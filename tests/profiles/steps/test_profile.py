"""Training steps: the thesis's sizes come out of the published models, and what breaks a rule is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InputError
from gapless.profiles.steps.profile import find_training_step, training_step_names

VALID: dict[str, Any] = {
    "format": "gapless.training-step", "version": 1, "name": "tiny", "device": "v100", "bucket_bytes": 100,
    "layers": [{"name": "a", "count": 2, "forward_flops": 1e9, "gradient_bytes": [60, 30]}],
}  # fmt: skip


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "step.json"
    path.write_text(json.dumps(VALID | changes))
    return path


def test_gradients_of_transformer_xl_go_in_buckets_of_20_to_40_mb() -> None:
    step = find_training_step("transformer-xl")
    tensors = [size for layer in step.layers for _ in range(layer.count) for size in layer.gradient_bytes]
    buckets = step.buckets()
    assert sum(buckets) == sum(tensors)
    typical = [size for size in buckets if 20e6 <= size <= 40e6]
    assert len(typical) > 0.9 * len(buckets)


def test_bert_waits_for_sums_of_2_mb_and_experts_for_6_mb() -> None:
    assert find_training_step("bert-large").sizes(4) == {"allreduce": (2_097_152.0,)}
    sizes = find_training_step("mixture-of-experts").sizes(1)
    assert sizes["alltoall"] == (6e6,)
    assert sizes["allreduce"] == pytest.approx((256e6,), rel=1e-6)


def test_a_bucket_is_sent_once_it_is_full_and_the_rest_at_the_end(tmp_path: Path) -> None:
    step = find_training_step(written(tmp_path))
    assert [sent for _, sent in step.backward_pass()] == [(), (150, 30)]


def test_all_ranks_share_a_layer_only_where_it_is_split(tmp_path: Path) -> None:
    plain, split = (
        find_training_step(written(tmp_path, tensor_parallel=is_split)).forward_s(
            find_training_step(written(tmp_path)).layers[0], 3, 8
        )
        for is_split in (False, True)
    )
    assert plain == pytest.approx(3e9 / (0.75 * 15.7e12))
    assert split == pytest.approx(plain / 8)


def test_every_shipped_step_says_where_it_is_from() -> None:
    for name in training_step_names():
        assert "5.8.4" in find_training_step(name).source


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": []}, "layers: must be a list of at least one layer"),
        ({"device": "abacus"}, "device: must be one of"),
        ({"layers": [{"name": "a", "forward_flops": 1, "forward": [{"collective": "allreduce"}]}]}, "bytes_per_sample"),
        ({"layers": [{"name": "a", "forward_flops": 1, "size": 1}]}, "size"),
    ],
)
def test_what_breaks_a_rule_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_training_step(written(tmp_path, **changes))


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match="bert-large, mixture-of-experts, transformer-xl"):
        find_training_step("bert")
