"""What encoding and decoding take, and what is sent. Without torch these tests are skipped."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.cli.main import main
from gapless.errors import InputError
from gapless.torch.compression import coding_times

SHAPES = [(64, 64), (64,), (32, 64)]
COUNT = 64 * 64 + 64 + 32 * 64


@pytest.mark.parametrize(
    ("mode", "sent_bytes"),
    [
        ("plain", 4 * COUNT), ("fp16", 2 * COUNT), ("signsgd", 1 + COUNT // 8), ("topk:0.01", 8 * 62),
        ("powersgd:2", 4 * (2 * 128 + 64 + 2 * 96)),
    ],
)  # fmt: skip
def test_each_repetition_is_timed_and_all_messages_count(mode: str, sent_bytes: int) -> None:
    found = coding_times(mode, SHAPES, ranks=4, repeats=2)
    assert found.sent_bytes == sent_bytes
    assert len(found.encode_s) == len(found.decode_s) == 2
    assert all(time_s >= 0 for time_s in found.both_s)
    assert min(found.both_s) <= found.median_s <= max(found.both_s)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InputError, match="mode"):
        coding_times("zip", SHAPES, ranks=4, repeats=1)


@pytest.mark.thorough
def test_the_command_says_what_each_takes_beside_what_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["profile", "compressors", "--compressor", "signsgd,topk", "--ranks", "2", "--repeats", "1"]
    assert main([*command, "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["profile"], found["ranks"]) == ("resnet50", 2)
    assert [(row["compressor"], row["collective"]) for row in found["rows"]] == [
        ("signsgd", "all-gather"), ("topk", "all-gather"),
    ]  # fmt: skip
    assert found["rows"][0]["ratio"] == pytest.approx(32, rel=1e-3)
    assert found["rows"][0]["published_s"] < found["rows"][1]["published_s"]
