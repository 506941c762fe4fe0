"""Costs of modes from what was measured of their hooks. Without torch these tests are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.gradients.cost_functions import AffineCost, PointsCost
from gapless.torch.ddp.beside import StepWork
from gapless.torch.ddp.fitting import FittedMode, fitted_mode
from gapless.torch.ddp.measuring import Gradients, HookTimes, sample_groups

SHAPES = ((100,), (200, 100), (40,), (50, 4, 100), (8,), (300, 200), (3, 2))
SIZES = tuple(4 * count for count in (100, 20_000, 40, 20_000, 8, 60_000, 6))
GRADIENTS = Gradients(tuple("abcdefg"), SHAPES, SIZES, 1e-3, (1e-3,) * 7, 0.1)


def fitted(mode: str, network: FlatNetwork | None = None, between_s: float = 0.0, noise: float = 0.0) -> FittedMode:
    """Of times on lines: encode 1 ms and 2 ns a byte, decode half of that, sends 3 ms and 4 ns a sent byte; and 5 ms to
    encode each matrix that is factored.
    """
    compressor = method_of(mode)
    rows = []
    for number, (first, last) in enumerate(sample_groups(SIZES)):
        size, shapes = sum(SIZES[first : last + 1]), SHAPES[first : last + 1]
        sent = sum(compressor.added_bytes(shape, 4) for shape in shapes)
        matrices = sum(map(compressor.is_factored, shapes))
        encode_s = (1e-3 + 2e-9 * size + 5e-3 * matrices) * (1 + noise * (-1) ** number)
        rows.append(HookTimes(mode, first, last, encode_s, 3e-3 + 4e-9 * sent, 5e-4 + 1e-9 * size, between_s, 0.2))
    return fitted_mode(mode, GRADIENTS, rows, network)


def test_work_beside_a_backward_pass_counts_and_waits_for_ranks_that_share_a_core() -> None:
    """Encode 2 ms and 3 ns a byte, decode half of that, collectives 4 ms and 5 ns a sent byte; two ranks on a core."""
    sent = sum(method_of("fp16").added_bytes(shape, 4) for shape in SHAPES)
    works = []
    for groups in (((0, 6),), ((0, 1), (2, 4), (5, 6))):
        encode_s = tuple(2e-3 + 3e-9 * sum(SIZES[first : last + 1]) for first, last in groups)
        decode_s = tuple(each_s / 2 for each_s in encode_s)
        works.append(StepWork("fp16", groups, encode_s, decode_s, 4e-3 * len(groups) + 5e-9 * sent))
    times = [HookTimes("fp16", 0, 6, 1.0, 1e-3, 1.0, 0.0, 0.1)]
    found = fitted_mode("fp16", GRADIENTS, times, None, works, slowdown=2.0)
    for cost, alpha_s, beta in (
        (found.mode.encode, 4e-3, 6e-9), (found.mode.decode, 2e-3, 3e-9), (found.mode.communication_work, 8e-3, 1e-8),
    ):  # fmt: skip
        assert float(cost(0)) == pytest.approx(alpha_s)
        assert float(cost(10**6)) == pytest.approx(alpha_s + 1e6 * beta)
    assert found.apart == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("mode", ["plain", "fp16", "topk:0.1", "ef-signsgd", "rand-k"])
def test_lines_come_back(mode: str) -> None:
    found = fitted(mode)
    assert (found.mode.name, found.mode.error) == (mode, method_of(mode).error)
    for cost, alpha_s, beta in (
        (found.mode.encode, 1e-3, 2e-9), (found.mode.decode, 5e-4, 1e-9), (found.mode.communication, 3e-3, 4e-9),
    ):  # fmt: skip
        assert float(cost(0)) == pytest.approx(alpha_s)
        assert float(cost(10**6)) == pytest.approx(alpha_s + 1e6 * beta)
    assert found.mode.encoded_bytes is None
    assert (found.mode.sent_bytes is None) == (mode == "plain")
    assert found.apart == pytest.approx(0.0, abs=1e-9)
    assert found.spread == 0.2


def test_factors_cost_by_the_matrix_and_by_its_shape() -> None:
    mode = fitted("powersgd:2").mode
    assert mode.sent_bytes == tuple(method_of("powersgd:2").sent_bytes(shape, 4) for shape in SHAPES)
    assert mode.encoded_bytes is not None
    more = [encoded - size for encoded, size in zip(mode.encoded_bytes, SIZES, strict=True)]
    assert [extra > 0 for extra in more] == [False, True, False, True, False, True, False]
    whole_s = float(mode.encode(sum(mode.encoded_bytes))) + float(mode.decode(sum(mode.encoded_bytes)))
    assert whole_s == pytest.approx(1.5e-3 + 3e-9 * sum(SIZES) + 3 * 5e-3, rel=0.2)


def test_on_a_network_latencies_are_those_of_the_messages_and_computing_between_them_is_kept() -> None:
    network = FlatNetwork(4, 1e9, 1e-4)
    plain, topk = (fitted(mode, network).mode.communication for mode in ("plain", "topk"))
    assert float(plain(10**6)) == pytest.approx(2 * 3 * 1e-4 + 1.5e-3)
    assert float(topk(10**6)) == pytest.approx(3 * 1e-4 + 3e-3)
    factors = fitted("powersgd:2", network, between_s=7e-3).mode.communication
    assert float(factors(0)) == pytest.approx(2 * 2 * 3 * 1e-4 + 7e-3)


FLAT_BYTES = 8_000
"""Up to here the times of the next test are constant."""


def measured_flat(off: float = 1.0) -> FittedMode:
    """Of 1 ms to encode up to `FLAT_BYTES`, then 2 us more a KB, 3 ms to send and nothing to decode; one is `off`."""
    gradients = Gradients(tuple("abcdef"), ((500,),) * 6, (2_000,) * 6, 1e-3, (1e-3,) * 6, 0.1)
    rows = []
    for last in range(6):
        encode_s = 1e-3 + 2e-9 * max(0, 2_000 * (last + 1) - FLAT_BYTES)
        rows.append(HookTimes("topk:0.1", 0, last, encode_s * (off if last == 2 else 1), 3e-3, 0.0, 0.0, 0.1))
    return fitted_mode("topk:0.1", gradients, rows)


def test_what_is_flat_up_to_a_size_comes_back_so() -> None:
    encode = measured_flat().mode.encode
    assert isinstance(encode, PointsCost)
    assert encode([0, 4_000, FLAT_BYTES, 10_000, 100_000]).tolist() == pytest.approx(
        [1e-3, 1e-3, 1e-3, 1.004e-3, 1.184e-3]
    )
    assert measured_flat().apart == pytest.approx(0, abs=1e-9)
    assert isinstance(measured_flat().mode.communication, AffineCost)


def test_a_fit_that_is_too_far_off_is_refused_with_where_it_is() -> None:
    found = measured_flat(off=4.0)
    assert found.where == 6_000
    found.check(within=found.apart + 1e-9)
    with pytest.raises(InputError, match=r"mode 'topk:0.1': fitted costs must be within 30% of all that was measured"):
        found.check(within=0.3)
    with pytest.raises(InputError, match=r"at 6 KB, repeats 10% apart; take more --repeats or .* --within \d"):
        found.check(within=0.3)
    fitted("topk:0.1", noise=0.1).check(within=0.3)


def test_how_far_a_line_is_off_is_said() -> None:
    assert 0.01 < fitted("plain", noise=0.1).apart < 0.2


def test_samples_double_from_either_end_and_hold_all() -> None:
    assert sample_groups([4, 4, 4, 4, 4, 4, 4]) == [(0, 0), (0, 1), (0, 3), (0, 6), (3, 6), (5, 6), (6, 6)]
    assert sample_groups([1]) == [(0, 0)]
    assert sample_groups([100, 1, 1]) == [(0, 0), (0, 2), (1, 2), (2, 2)]
