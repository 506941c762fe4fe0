"""Steps with implementations that are close to eager's: what they stand in for, how far off they are, what they hold.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import numpy as np
import torch
from extras import needs_transformers
from torch import nn
from torch.nn import functional
from torch_closeness import distance
from torch_models import Case, Gpt, cases
from torch_steps import Left, keep_all, left_by_eager, left_by_plan, random_plan

from gapless.encodings.monet import Problem
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.search.retention import just_in_time
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, write_plan
from gapless.options import SolveOptions
from gapless.torch.capture.graph import capture
from gapless.torch.capture.program import CapturedStep
from gapless.torch.capture.timing import profile
from gapless.torch.joint_graph import CLOSE
from gapless.torch.run import StepPlan, load, plan, run

pytestmark = pytest.mark.usefixtures("one_thread")
MOST = 1e-5
"""That a gradient of a whole model may be off, relative to its norm."""


@pytest.fixture(scope="module")
def models() -> dict[str, Case]:
    return cases()


def ops_of(step: CapturedStep) -> Counter[str]:
    """How many forward operators of each name there are."""
    return Counter(node.op for node in step.graph.forward)


def assert_close(found: Left, expected: Left) -> None:
    """Random state and numbers of batches are equal, all else close."""
    assert torch.equal(found.random, expected.random)
    assert found.gradients.keys() == expected.gradients.keys()
    for name, gradient in expected.gradients.items():
        mine = found.gradients[name]
        assert (mine is None) == (gradient is None)
        if mine is not None and gradient is not None and gradient.norm() > 1e-5:
            assert distance(mine, gradient) < MOST
    for name, buffer in expected.buffers.items():
        assert torch.allclose(found.buffers[name], buffer, rtol=MOST)
    for mine, loss in zip(found.losses, expected.losses, strict=True):
        assert distance(mine, loss) < MOST


def assert_plans_are_close(
    model: nn.Module, step: CapturedStep, loss_of: Callable[[nn.Module], Any], *given: Any, **named: Any
) -> None:
    """Any plan of a step is close to eager, within its own peak."""
    expected = left_by_eager(model, loss_of)
    for planned in (keep_all(step), *(random_plan(step, seed) for seed in range(6))):
        found = left_by_plan(model, planned, *given, **named)
        assert_close(found, expected)
        assert found.peak_bytes <= planned.peak_bytes


# -- models ------------------------------------------------------------------------------------------------------------

FOUND = {
    "resnet": {"batch_norm": 16, "linear_cross_entropy_keeping": 1},
    "unet": {"batch_norm": 10},
    "gpt": {"dropped_attention_keeping": 2, "linear_cross_entropy_keeping": 1},
    "bert": {"dropped_attention_keeping": 2, "linear_cross_entropy_keeping": 1},
}
"""The operators that stand in for eager's, in the small models."""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", list(FOUND))
def test_plans_with_all_kinds_are_close_and_keep_to_their_peak(models: dict[str, Case], kind: str) -> None:
    model, given = models[kind]
    step = profile(capture(model, given, name=kind, close=CLOSE), repeats=1)
    assert FOUND[kind].items() <= ops_of(step).items()
    assert_plans_are_close(model, step, lambda its: its(*given), *given)


@pytest.mark.thorough("resnet", "unet")
@pytest.mark.parametrize("kind", list(FOUND))
def test_by_default_no_operator_is_replaced(models: dict[str, Case], kind: str) -> None:
    model, given = models[kind]
    step = capture(model, given, name=kind)
    assert not FOUND[kind].keys() & ops_of(step).keys()
    assert not any(call.close for operator in step.operators if operator for call in operator.calls)
    assert run(keep_all(step), model).close == {}


def test_unknown_kind_is_refused_with_those_that_there_are(models: dict[str, Case]) -> None:
    with pytest.raises(InputError, match="close: must be among attention, loss, norm, got 'fast'"):
        capture(*models["gpt"], close=("fast",))


@pytest.mark.thorough
def test_solver_picks_them_where_they_fit_a_budget_that_eagers_operators_do_not() -> None:
    torch.manual_seed(0)
    words = torch.randint(4096, (4, 64)), torch.randint(4096, (4, 64))
    model = Gpt(width=32, layers=2, heads=4, words=4096, length=64)
    step = profile(capture(model, words, close=("attention", "loss")), repeats=1)
    exact = profile(capture(model, words), repeats=1)
    scores_bytes = 4 * 4096 * 4 * 64
    gradients_bytes = exact.graph.backward[-1].fixed_bytes - exact.graph.fixed_bytes
    budget_bytes = gradients_bytes + scores_bytes // 2
    options = SolveOptions(gap=1.0, time_limit_s=20.0, threads=1)
    planned = plan(step, Problem(step.graph, budget_bytes), options)
    found = left_by_plan(model, planned, *words)
    assert_close(found, left_by_eager(model, lambda its: its(*words)))
    assert found.peak_bytes <= planned.peak_bytes <= budget_bytes
    assert run(planned, model).close == {"attention": 2, "loss": 1}
    with pytest.raises(InputError, match="infeasible"):
        plan(exact, Problem(exact.graph, budget_bytes), options)


def test_gradients_add_up_over_steps(models: dict[str, Case]) -> None:
    model, given = models["gpt"]
    step = capture(model, given, close=CLOSE)
    found = left_by_plan(model, random_plan(step, 1), *given, steps=3)
    assert_close(found, left_by_eager(model, lambda its: its(*given), steps=3))


@pytest.mark.thorough
def test_plan_from_a_file_runs_the_same_implementations(models: dict[str, Case], tmp_path: Path) -> None:
    model, given = models["gpt"]
    planned = random_plan(capture(model, given, name="gpt", close=CLOSE), 4)
    write_plan(tmp_path / "plan.json", SavedPlan("monet", {}, {}, {}, planned.schedule))
    loaded = load(tmp_path / "plan.json", capture(model, given, name="gpt", close=CLOSE))
    assert run(loaded, model).close == run(planned, model).close != {}
    assert left_by_plan(model, loaded, *given).differs_from(left_by_plan(model, planned, *given)) == []
    with pytest.raises(InputError, match=r"plan\.json: plan must be for the step 'gpt'"):
        load(tmp_path / "plan.json", capture(model, given, name="gpt"))


# -- attention ---------------------------------------------------------------------------------------------------------


class Written(nn.Module):
    """Attention as it is written out in many models."""

    def __init__(self, dropout: float, heads: int = 4, width: int = 16, turn: str = "mul") -> None:
        super().__init__()
        self.inner, self.heads, self.dropout, self.turn = nn.Linear(width, 3 * width), heads, dropout, turn

    def forward(self, given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = given.shape
        parts = self.inner(given).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        scores = query @ key.transpose(-1, -2)
        scores = scores / 2.0 if self.turn == "div" else scores * 0.5
        weights = functional.dropout((scores + mask).softmax(-1), self.dropout, self.training)
        return (weights @ value).transpose(1, 2).reshape(batch, length, width).pow(2).mean()


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("turn", ["mul", "div"])
def test_attention_that_is_written_out_is_found(dropout: float, turn: str) -> None:
    torch.manual_seed(0)
    model = Written(dropout, turn=turn)
    given = torch.randn(2, 9, 16), torch.zeros(2, 1, 9, 9).masked_fill_(torch.rand(2, 1, 9, 9) < 0.2, -1e9)
    step = profile(capture(model, given, close=("attention",)), repeats=1)
    assert ops_of(step)["dropped_attention_keeping" if dropout else "flash_attention_keeping"] == 1
    names = {call.name for operator in step.operators if operator for call in operator.calls if call.close}
    assert names == ({"", "from probabilities"} if dropout else {"", "in pieces", "from probabilities"})
    assert_plans_are_close(model, step, lambda its: its(*given), *given)


@pytest.mark.thorough
def test_attention_in_pieces_has_eagers_bits_in_16_bits_too(models: dict[str, Case]) -> None:
    model, given = models["bert"]
    model = copy.deepcopy(model).bfloat16()
    step = profile(capture(model, given, close=("attention", "loss")), repeats=1)
    found = ops_of(step)
    assert found["dropped_attention_keeping"] == 2
    assert "linear_cross_entropy_keeping" not in found  # rows can't be counted in 16 bits
    expected = left_by_eager(model, lambda its: its(*given))
    for planned in (keep_all(step), random_plan(step, 1)):
        assert left_by_plan(model, planned, *given).differs_from(expected) == []


class Biased(Written):
    """Attention with a bias that is learnt, whose gradient needs all scores."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.bias = nn.Parameter(torch.randn(4, 9, 9))

    def forward(self, given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(given, mask + self.bias)


class Shown(Written):
    """Attention whose probabilities are looked at."""

    def forward(self, given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query = self.inner(given).view(2, 9, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (query[0] @ query[1].transpose(-1, -2) + mask).softmax(-1)
        return (weights @ query[2]).pow(2).mean() + weights.pow(2).mean()


class Odd(Written):
    """Attention with something done to scores or probabilities that moves them."""

    def __init__(self, scored: Callable[[Any], Any], weighed: Callable[[Any], Any] = lambda its: its) -> None:
        super().__init__(0.0)
        self.scored, self.weighed = scored, weighed

    def forward(self, given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(given).view(2, 9, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.weighed(self.scored(query @ key.transpose(-1, -2)).softmax(-1))
        return (weights @ value[:, :, : weights.shape[-1]]).pow(2).mean()


ODD: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "turned scores": (lambda its: its.transpose(-1, -2),),
    "turned probabilities": (lambda its: its, lambda its: its.transpose(-1, -2)),
    "some scores": (lambda its: its[..., :5],),
    "flipped heads": (lambda its: its.flip(1),),
    "scores of another shape": (lambda its: its.reshape(2, 4, 27, 3), lambda its: its.reshape(2, 4, 9, 9)),
    "more scores than products": (lambda its: its[:, :1] + torch.arange(4.0)[None, :, None, None],),
    "scores of another type": (lambda its: its.double(), lambda its: its.float()),
    "a softmax of examples": (lambda its: its.transpose(0, 3), lambda its: its.transpose(0, 3)),
}


@pytest.mark.thorough("scores", "probabilities")
@pytest.mark.parametrize("name", list(ODD))
def test_what_only_resembles_attention_stays_what_it_is(name: str) -> None:
    torch.manual_seed(0)
    model, given = Odd(*ODD[name]), (torch.randn(2, 9, 16), torch.zeros(1))
    step = profile(capture(model, given, close=("attention",)), repeats=1)
    assert not any("attention" in op for op in ops_of(step))
    assert_plans_are_close(model, step, lambda its: its(*given), *given)


@pytest.mark.parametrize("made", [Biased, lambda: Shown(0.0)])
def test_attention_that_needs_more_than_its_output_is_left_as_it_is(made: Callable[[], nn.Module]) -> None:
    model, given = made(), (torch.randn(2, 9, 16), torch.zeros(2, 1, 9, 9))
    step = capture(model, given, close=CLOSE)
    assert not any("attention" in op for op in ops_of(step))
    found = left_by_plan(model, keep_all(step), *given)
    assert found.differs_from(left_by_eager(model, lambda its: its(*given))) == []


# -- cross entropy -----------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """A linear layer with some loss."""

    def __init__(self, loss: Callable[..., torch.Tensor], bias: bool = True) -> None:
        super().__init__()
        self.first, self.last, self.loss = nn.Linear(8, 8), nn.Linear(8, 40, bias=bias), loss

    def forward(self, given: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return self.loss(self.last(self.first(given).tanh()), label)


def mean(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, -2), label.flatten())


def scaled_sum(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return 0.1 * functional.cross_entropy(scores.flatten(0, -2), label.flatten(), reduction="sum", ignore_index=3)


def smoothed(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, -2), label.flatten(), label_smoothing=0.1)


def penalised(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return mean(scores, label) + scores.pow(2).mean()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("loss", [mean, scaled_sum])
def test_linear_with_cross_entropy_is_found(loss: Callable[..., torch.Tensor], bias: bool) -> None:
    torch.manual_seed(0)
    model, given = Classifier(loss, bias), (torch.randn(5, 7, 8), torch.randint(40, (5, 7)))
    step = profile(capture(model, given, close=("loss",)), repeats=1)
    assert ops_of(step)["linear_cross_entropy_keeping"] == 1
    assert_plans_are_close(model, step, lambda its: its(*given), *given)


@pytest.mark.parametrize("loss", [smoothed, penalised])
def test_scores_that_are_needed_otherwise_stay(loss: Callable[..., torch.Tensor]) -> None:
    model, given = Classifier(loss), (torch.randn(5, 7, 8), torch.randint(40, (5, 7)))
    step = capture(model, given, close=CLOSE)
    assert "linear_cross_entropy_keeping" not in ops_of(step)
    found = left_by_plan(model, keep_all(step), *given)
    assert found.differs_from(left_by_eager(model, lambda its: its(*given))) == []


@needs_transformers
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_gpt2_of_transformers_is_close(dropout: float) -> None:
    import transformers

    torch.manual_seed(0)
    word = torch.randint(64, (2, 16))
    inputs = {"input_ids": word, "labels": word, "attention_mask": torch.ones_like(word)}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=32, n_layer=2, n_head=2, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0,
            use_cache=False, attn_implementation="eager", attn_pdrop=dropout,
        )
    ).train()  # fmt: skip
    step = profile(capture(model, inputs, lambda output: output.loss, close=("attention", "loss")), repeats=1)
    found = ops_of(step)
    assert found["dropped_attention_keeping" if dropout else "flash_attention_keeping"] == 2
    assert found["linear_cross_entropy_keeping"] == 1
    assert_plans_are_close(model, step, lambda its: its(**inputs).loss, **inputs)


# -- batch norm --------------------------------------------------------------------------------------------------------


def convolutions(activation: Callable[[], nn.Module]) -> nn.Sequential:
    """Convolutions with batch norm and an activation in place."""
    layers: list[nn.Module] = []
    for inputs in (3, 8, 8):
        layers += [nn.Conv2d(inputs, 8, 3), nn.BatchNorm2d(8), activation()]
    return nn.Sequential(*layers, nn.Conv2d(8, 4, 1))


ACTIVATIONS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "leaky": (lambda: nn.LeakyReLU(0.1, inplace=True), "from activation"),
    "leaky, apart": (lambda: nn.LeakyReLU(0.1), "from output"),
    "relu": (lambda: nn.ReLU(inplace=True), "from output"),
    "silu": (nn.SiLU, "from output"),
    "none": (nn.Identity, "from output"),
}


@pytest.mark.thorough(but=("none",))
@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_batch_norm_with_its_activation_is_close(name: str) -> None:
    torch.manual_seed(0)
    activation, impl = ACTIVATIONS[name]
    model, given, target = convolutions(activation), torch.randn(4, 3, 16, 16), torch.randn(4, 4, 10, 10)
    step = profile(capture(model, (given,), functional.mse_loss, targets=(target,), close=("norm",)), repeats=1)
    assert {node.variants[-1].name for node in step.graph.backward if "batch_norm" in node.op} == {impl}
    assert_plans_are_close(model, step, lambda its: functional.mse_loss(its(given), target), given, target)


def from_outputs(step: CapturedStep) -> StepPlan:
    """A plan that keeps nothing and computes what it can from outputs."""
    for seed in range(20):
        planned = random_plan(step, seed)
        if run(planned, convolutions(nn.ReLU)).close:
            return planned
    raise AssertionError


def test_step_is_refused_once_a_weight_is_near_zero() -> None:
    torch.manual_seed(0)
    model, given = convolutions(nn.ReLU), torch.randn(4, 3, 16, 16)
    step = capture(model, (given,), lambda found: found.pow(2).mean(), close=("norm",))
    train = run(from_outputs(step), model)
    train(given)
    with torch.no_grad():
        for norm in (1, 4, 7):
            model[norm].weight[3] = 0.0
    with pytest.raises(InputError, match=r"batch norm weight '[147]\.weight' is too near zero"):
        train(given)


def test_weights_of_zero_and_evaluation_are_left_to_the_input() -> None:
    model, given = convolutions(nn.ReLU), torch.randn(4, 3, 16, 16)
    nn.init.zeros_(model[4].weight)
    step = capture(model, (given,), lambda found: found.pow(2).mean(), close=("norm",))
    assert ops_of(step)["batch_norm"] == 2
    model.eval()
    assert "batch_norm" not in ops_of(capture(model, (given,), lambda found: found.pow(2).mean(), close=("norm",)))


def test_leaky_activation_serves_batch_norm_and_the_next_layer() -> None:
    torch.manual_seed(0)
    model, given = convolutions(lambda: nn.LeakyReLU(0.1, inplace=True)), torch.randn(8, 3, 32, 32)
    step = profile(capture(model, (given,), lambda found: found.pow(2).mean(), close=("norm",)), repeats=1)
    dropped = ("convolution", "convolution_1", "convolution_2")  # what a batch norm is given, and what it makes
    kept = np.array([node.name not in dropped and node.op != "batch_norm" for node in step.graph.forward])
    again = {}
    for last in (True, False):
        variants = np.array([len(node.variants) - 1 if last else 0 for node in step.graph.backward])
        schedule = to_schedule(step.graph, just_in_time(step.graph, kept, variants))
        names = Counter(schedule.graph.ops[event.op].name for event in schedule.events())
        again[last] = {name for name, count in names.items() if count > 1}
        in_place = [schedule.graph.ops[event.op].name for event in schedule.events()
                    if schedule.graph.ops[event.op].implementations[event.implementation].overwrites]  # fmt: skip
        if last:  # batch norm over the convolution's output, the activation over that
            assert sum(name.startswith(("_native_batch_norm", "leaky_relu")) for name in in_place) == 6
    assert again == {True: set(), False: set(dropped)}
