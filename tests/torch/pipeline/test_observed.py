"""What compressed hops lose: equations 11 to 14 of Optimus-CC on gradients of which all is known."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.torch.compression import HopCompressor
from gapless.torch.pipeline.observed import HopErrors, HopObserver, gradient_sums, joined

MICRO_BATCHES, ROWS, WIDTH = 5, 6, 4


def drawn(seed: int) -> list[torch.Tensor]:
    """A tensor for each micro-batch."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, ROWS, WIDTH, generator=generator, dtype=torch.float64) for _ in range(MICRO_BATCHES)]


def sent(gradients: list[torch.Tensor], propagates: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What a rank-1 hop makes of gradients, and its errors."""
    compressor, arrived, errors, lost = HopCompressor("rank 1"), [], [], torch.zeros(())
    for gradient in gradients:
        given = gradient + lost
        arrived.append(compressor.decode(compressor.encode(given), given))
        errors.append(arrived[-1] - given)
        lost = -errors[-1] if propagates else lost
    return arrived, errors


def weights(gradients: list[torch.Tensor], inputs: list[torch.Tensor]) -> torch.Tensor:
    """The gradient of a linear layer's weights, summed over micro-batches."""
    return sum(g[0].T @ x[0] for g, x in zip(gradients, inputs, strict=True))


def test_a_weights_gradient_is_off_by_changes_of_errors_and_summed_by_parts_by_changes_of_inputs() -> None:
    gradients, inputs = drawn(0), drawn(1)
    arrived, errors = sent(gradients, propagates=True)
    off = weights(arrived, inputs) - weights(gradients, inputs)
    before = [torch.zeros_like(errors[0]), *errors[:-1]]
    equation_11 = weights([one - other for one, other in zip(errors, before, strict=True)], inputs)
    after = [*inputs[1:], torch.zeros_like(inputs[0])]
    equation_12 = weights(errors, [one - other for one, other in zip(inputs, after, strict=True)])
    assert float(off.norm()) > 1
    assert torch.allclose(off, equation_11)
    assert torch.allclose(off, equation_12)


def test_without_propagation_it_is_off_by_errors_times_inputs() -> None:
    gradients, inputs = drawn(0), drawn(1)
    arrived, errors = sent(gradients, propagates=False)
    assert torch.allclose(weights(arrived, inputs) - weights(gradients, inputs), weights(errors, inputs))


def looked(propagates: bool) -> tuple[HopErrors, list[torch.Tensor], list[torch.Tensor]]:
    """What an observer says of a step, the errors, and the activations."""
    observer, gradients, inputs = HopObserver(), drawn(0), drawn(1)
    arrived, errors = sent(gradients, propagates)
    for m, activation in enumerate(inputs):
        observer.come(m, activation)
    for m, gradient in enumerate(gradients):
        observer.look(m, gradient, arrived[m] - errors[m], -errors[m])
    found = observer.seen(3, 0)
    assert found is not None
    assert observer.seen(4, 0) is None, "forgotten"
    return found, errors, inputs


@pytest.mark.parametrize("propagates", [True, False])
def test_an_observer_finds_how_far_weights_are_off_and_both_parts(propagates: bool) -> None:
    found, errors, inputs = looked(propagates)
    gradients = drawn(0)
    norm = float(weights(gradients, inputs).norm())
    arrived, _ = sent(gradients, propagates)
    off = weights(arrived, inputs) - weights(gradients, inputs)
    assert found.off == pytest.approx(float(off.norm()) / norm)
    inner = weights(errors[:-1], [one - other for one, other in pairwise(inputs)])
    end = errors[-1][0].T @ inputs[-1][0]
    assert (found.inner, found.end) == pytest.approx((float(inner.norm()) / norm, float(end.norm()) / norm))
    if propagates:
        assert torch.allclose(off, inner + end), "equation 12 with its last term"


def test_an_observer_finds_the_cosines_and_means_of_equation_14() -> None:
    found, errors, inputs = looked(propagates=True)
    change = inputs[1] - inputs[2]
    assert found.cosine[1] == pytest.approx(float((errors[1] * change).sum() / errors[1].norm() / change.norm()))
    assert found.error_mean[0] == pytest.approx(float(errors[0].mean() / errors[0].square().mean().sqrt()))
    assert len(found.share) == MICRO_BATCHES
    given = drawn(0)[2] - errors[1]
    assert found.share[2] == pytest.approx(float(errors[2].square().sum() / given.square().sum()))


def test_a_single_micro_batch_has_an_end_and_no_neighbours() -> None:
    observer, error = HopObserver(), drawn(2)[0]
    observer.come(0, drawn(1)[0])
    observer.look(0, error, error, error / 2)
    found = observer.seen(0, 0)
    assert found is not None
    assert (found.share, found.cosine, found.inner) == (pytest.approx((0.25,)), (), 0)
    assert found.end == found.off == pytest.approx(0.5)


def test_errors_of_ranks_join_into_those_of_the_whole_gradient() -> None:
    expected, found = drawn(1), drawn(2)
    both = joined(0, [gradient_sums(found[:2], expected[:2]), gradient_sums(found[2:], expected[2:])])
    one, other = torch.cat(found), torch.cat(expected)
    assert both.error == pytest.approx(float((one - other).square().sum() / other.square().sum()))
    assert both.cosine == pytest.approx(float((one * other).sum() / one.norm() / other.norm()))
