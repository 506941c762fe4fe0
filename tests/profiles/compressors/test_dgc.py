"""Deep gradient compression against its paper's algorithm, written down plainly. Without torch these are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.profiles.compressors.dgc import Dgc
from gapless.profiles.compressors.method import Bucket, Message
from gapless.torch.compression import returned

LENGTH = 400


class Rank:
    """One rank's exchanges, as the hook makes them: what is left comes back with the next gradient."""

    def __init__(self, method: Dgc, scale: float = 1.0) -> None:
        self.method, self.scale, self.step = method, scale, 0
        self.error: torch.Tensor | None = None
        self.entries: dict[str, torch.Tensor] = {}
        self.message: Message

    def sent(self, gradient: torch.Tensor) -> torch.Tensor:
        """The mean of a step."""
        given = gradient.clone() if self.error is None else gradient + self.error
        shapes = [tuple(gradient.shape)]
        bucket = Bucket(given, shapes, 0, 1, 0, self.step, {}, self.error, dict(self.entries), self.scale)
        exchange = self.method.exchange(bucket)
        self.message = next(exchange)
        mean = returned(exchange, self.message.payload.view(1, -1))
        self.error, self.entries, self.step = bucket.gradient, bucket.entries, self.step + 1
        return mean


def gradients(steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(LENGTH, generator=generator, dtype=torch.float64) for _ in range(steps)]


def by_the_paper(
    given: list[torch.Tensor], momentum: float, clip: float, sent: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Algorithm 4 of its appendix, with the places that were really sent; what is sent there in each step."""
    velocity, unsent = torch.zeros(LENGTH, dtype=torch.float64), torch.zeros(LENGTH, dtype=torch.float64)
    found = []
    for gradient, mean in zip(given, sent, strict=True):
        if clip:
            gradient = gradient * min(1.0, clip / float(gradient.norm()))
        velocity = momentum * velocity + gradient
        unsent = unsent + velocity
        is_sent = mean != 0
        found.append(torch.where(is_sent, unsent, 0.0))
        unsent, velocity = torch.where(is_sent, 0.0, unsent), torch.where(is_sent, 0.0, velocity)
    return found


@pytest.mark.parametrize("clip", [0.0, 5.0])
def test_steps_are_those_of_the_papers_algorithm(clip: float) -> None:
    rank, given = Rank(Dgc(0.05, 0.9, clip)), gradients(8)
    sent = [rank.sent(gradient) for gradient in given]
    for own, expected in zip(sent, by_the_paper(given, 0.9, clip, sent), strict=True):
        assert torch.allclose(own, expected, atol=1e-12)
    assert all(0.7 * 20 <= int((mean != 0).sum()) <= 20 for mean in sent)


def test_all_that_is_sent_is_momentum_sgds_step() -> None:
    """With every entry sent, velocities start anew each time; an entry that isn't sent adds up momentum's."""
    whole = Rank(Dgc(1.0, 0.9))
    assert all(torch.allclose(whole.sent(gradient), gradient) for gradient in gradients(3))
    one = Rank(Dgc(1 / LENGTH, 0.5))
    quiet = torch.full((LENGTH,), 1e-3, dtype=torch.float64)
    for gradient in (quiet, quiet, quiet):
        gradient = gradient.clone()
        gradient[3] = 50.0
        one.sent(gradient)
    # Three steps of 1e-3 with momentum 0.5: velocities of 1, 1.5 and 1.75 of it.
    assert one.error is not None
    assert float(one.error[7]) == pytest.approx(4.25e-3)


def test_what_is_sent_is_about_the_largest_and_messages_are_equally_long() -> None:
    rank, lengths = Rank(Dgc(0.05)), set()
    for gradient in gradients(5):
        mean = rank.sent(gradient)
        lengths.add(len(rank.message.payload))
        assert rank.error is not None
        is_sent = mean != 0
        left = rank.error.abs()
        assert float(mean[is_sent].abs().min()) >= 0.5 * float(left[~is_sent].max())
    assert lengths == {20 * (4 + 8)}


def test_the_share_falls_in_four_stages_of_the_warm_up() -> None:
    method = Dgc(0.001, warmup=40)
    assert [method.kept_at(step) for step in (0, 9, 10, 20, 30, 39, 40)] == [
        0.25, 0.25, 1 / 16, 1 / 64, 1 / 256, 1 / 256, 0.001,
    ]  # fmt: skip
    assert Dgc(0.1, warmup=4).kept_at(3) == 0.1
    rank = Rank(Dgc(0.01, warmup=4))
    counts = [int((rank.sent(gradient) != 0).sum()) for gradient in gradients(5)]
    for count, share in zip(counts, (1 / 4, 1 / 16, 1 / 64, 1 / 100, 1 / 100), strict=True):
        assert 0.5 * share * LENGTH <= count <= share * LENGTH + 1


def test_clipping_bounds_the_norm_of_all_ranks_together_whatever_the_loss_is_scaled_by() -> None:
    gradient = gradients(1)[0]
    for scale in (1.0, 1024.0):
        rank = Rank(Dgc(1.0, 0.0, clip=2.0), scale)
        assert float(rank.sent(scale * gradient).norm()) == pytest.approx(2 * scale)
    bucket = Bucket(gradient.clone(), [(LENGTH,)], 0, 4)
    next(Dgc(1.0, 0.0, clip=2.0).exchange(bucket))
    assert float(bucket.entries["velocity"].norm()) == 0.0  # all are sent: none goes on
    assert float(Rank(Dgc(1.0, 0.0, clip=100.0)).sent(gradient).norm()) == pytest.approx(float(gradient.norm()))
