"""Parts of a model that can't be captured run by autograd itself, between planned operators, to the bit.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
import torch.utils.checkpoint
from torch import nn

from gapless.errors import InputError
from gapless.torch import planned
from gapless.torch.capture import capture, profile
from gapless.torch.devices import measure_peak
from gapless.torch.run import run


class Around(nn.Module):
    """A part of a model between two layers that are planned."""

    def __init__(self, part: nn.Module, width: int = 16) -> None:
        super().__init__()
        self.first, self.part, self.last = nn.Linear(6, width), part, nn.Linear(width, 4)

    def forward(self, given: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        hidden = self.first(given).relu()
        return self.last(hidden + self.part(hidden, *more).tanh())


class Neighbours(nn.Module):
    """A graph convolution over the edges that there are."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.weight = nn.Linear(width, width)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        to, by = edges.nonzero(as_tuple=True)
        return torch.zeros_like(nodes).index_add(0, to, self.weight(nodes)[by])


class Experts(nn.Module):
    """Experts that take the rows that a gate sends them; one that gets none is not run."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gate, self.drop = nn.Linear(width, 3), nn.Dropout(0.2)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(3))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.gate(rows).softmax(-1).max(-1)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            (places,) = torch.where(chosen == number)
            if places.numel():
                out = out.index_add(0, places, self.drop(expert(rows[places])) * shares[places, None])
        return out


class Counts(nn.Module):
    """Returns the rows above the average."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[rows.mean(1) > rows.mean()]


class Pooled(nn.Module):
    """The mean of what `Counts` returns, over all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows * self.counts(rows).sum(0)


class NormInside(nn.Module):
    """Looks into its data, and has a batch norm and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls = nn.BatchNorm1d(16), 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.norm(rows) * (2.0 if rows.sum() > 0 else 3.0)


def pair(model: nn.Module, budget: str = "1x", **options: Any) -> tuple[nn.Module, nn.Module, list[str]]:
    """A model, a copy whose calls follow plans, and what was reported."""
    lines: list[str] = []
    return model, planned(copy.deepcopy(model), budget, report=lines.append, **options), lines


def examples(step: int, rows: int = 12) -> torch.Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(step))


def differences(
    eager: nn.Module, model: nn.Module, given: Callable[[int], tuple[Any, ...]], steps: int = 3
) -> list[str]:
    """What isn't equal bit by bit in some steps of training: losses, gradients, weights, buffers."""
    optimisers = [torch.optim.AdamW(its.parameters(), lr=0.05) for its in (eager, model)]
    off: list[str] = []
    for step in range(steps):
        losses = []
        for its, optimiser in zip((eager, model), optimisers, strict=True):
            torch.manual_seed(step)
            optimiser.zero_grad()
            found = its(*given(step))
            loss = found if not found.dim() else found.pow(2).mean()
            loss.backward()
            losses.append((loss.detach(), torch.rand(())))  # the random state after it, too
        off += [] if losses[0] == losses[1] else [f"loss {step}"]
        for (name, one), other in zip(eager.named_parameters(), model.parameters(), strict=True):
            if (one.grad is None) != (other.grad is None):
                off.append(f"{name}: gradient or none")
            elif one.grad is not None and not torch.equal(one.grad, other.grad):
                off.append(f"{name} {step}")
        for optimiser in optimisers:
            optimiser.step()
    wanted = eager.state_dict()
    return off + [name for name, value in model.state_dict().items() if not torch.equal(value, wanted[name])]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_graph_convolution_over_other_edges_at_each_step_has_eagers_bits() -> None:
    eager, model, lines = pair(Around(Neighbours()))

    def given(step: int) -> tuple[torch.Tensor, ...]:
        return examples(step), torch.rand(12, 12, generator=torch.Generator().manual_seed(step)) > 0.2 * step

    assert differences(eager, model, given) == []
    assert len(model.forward.plans) == 1
    assert lines[0].startswith("module 'part' runs as an eager island: it looks into its data, by aten.nonzero")


def test_routed_experts_have_eagers_bits_and_one_without_rows_has_no_gradient() -> None:
    eager, model, _ = pair(Around(Experts()))
    with torch.no_grad():
        for its in (eager, model):
            its.part.gate.bias.copy_(torch.tensor([9.0, 0.0, -9.0]))
    assert differences(eager, model, lambda step: (examples(step),)) == []
    assert model.part.experts[2][0].weight.grad is None
    assert model.part.experts[0][0].weight.grad is not None


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.loss = nn.Linear(6, 8), nn.CTCLoss()

    def forward(self, sound: torch.Tensor, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        found = self.layer(sound.unflatten(0, (-1, 2))).log_softmax(-1)
        return self.loss(found, words, torch.full((2,), found.shape[0]), lengths)


def test_ctc_loss_inside_of_the_model_has_eagers_bits() -> None:
    eager, model, _ = pair(Speech())
    words = torch.randint(1, 8, (2, 4))
    assert differences(eager, model, lambda step: (examples(step, 24), words, torch.tensor([4, 2 + step % 2]))) == []


class Layers(nn.Module):
    """A recurrent layer, and algebra that looks whether it succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.last = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(given.unflatten(0, (3, -1)))
        square = hidden.flatten(0, 1).T @ hidden.flatten(0, 1) + torch.eye(8)
        return self.last(hidden @ torch.linalg.solve(square, torch.linalg.inv(square)))


def test_recurrent_layer_and_checked_algebra_have_eagers_bits() -> None:
    eager, model, lines = pair(Layers())
    assert differences(eager, model, lambda step: (examples(step),)) == []
    assert any("torch.linalg.inv, torch.linalg.solve run as eager islands" in line for line in lines)


class Branches(nn.Module):
    """Goes one way or the other by its data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.drop, self.back = nn.Linear(width, 3 * width), nn.Dropout(0.3), nn.Linear(3 * width, width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.back(self.drop(nn.functional.gelu(self.layer(rows))))
        return found if rows.sum() > 0 else -found


def test_island_is_recomputed_with_its_random_state_and_the_peak_keeps_to_the_plan() -> None:
    eager, model, _ = pair(nn.Sequential(Around(Branches(32), 32), nn.Linear(4, 6), Around(Branches(32), 32)), "0.75x")
    given = examples(0, 256)
    assert differences(eager, model, lambda _: (given,), 2) == []
    assert 2 in [len(group) for group in _runs(model).values()]
    peak_bytes, _ = measure_peak(lambda: _step(model, given), given.device)
    eager_bytes, _ = measure_peak(lambda: _step(eager, given), given.device)
    assert peak_bytes <= model.forward.plans[0].peak_bytes < 0.85 * eager_bytes


def _step(model: nn.Module, given: torch.Tensor) -> None:
    model.zero_grad()
    model(given).sum().backward()


def _runs(model: nn.Module) -> dict[str, list[str]]:
    """The events of each island's forward operator in the first plan."""
    schedule = model.forward.plans[0].schedule
    found: dict[str, list[str]] = {}
    for event in schedule.events():
        name = schedule.graph.ops[event.op].name
        if name.startswith("island") and "backward" not in name and "." not in name:
            found.setdefault(name, []).append(name)
    return found


def test_island_that_changes_buffers_runs_once_and_changes_them_once() -> None:
    eager, model, _ = pair(Around(NormInside()))
    assert differences(eager, model, lambda step: (examples(step),)) == []
    assert [len(group) for group in _runs(model).values()] == [1]
    assert len(model.forward.plans) == 1


@pytest.mark.thorough
def test_shape_that_depends_on_data_lets_the_island_grow() -> None:
    eager, model, lines = pair(Around(Pooled()))
    assert differences(eager, model, lambda step: (examples(step),)) == []
    assert any(
        "module 'part' runs as an eager island: module 'part.counts' returns a tensor of" in line for line in lines
    )


def test_shape_that_depends_on_data_in_the_model_itself_is_one_line() -> None:
    class Few(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.counts = nn.Linear(6, 6), Counts()

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.counts(self.layer(given)) * 2

    _, model, _ = pair(Few())
    with pytest.raises(InputError, match=r"module 'counts' returns a tensor of .* put both into one module, and name"):
        [model(examples(step)) for step in range(9)]


def test_module_with_a_hook_is_an_island_when_it_is_named() -> None:
    eager = Around(nn.Linear(16, 16))
    seen: list[torch.Tensor] = []
    _, model, _ = pair(eager, islands=["part"])
    model.part.register_forward_hook(lambda _, given, found: seen.append(found.detach()))
    assert differences(eager, model, lambda step: (examples(step),), 1) == []
    expected = eager.part(eager.first(examples(0)).relu())
    assert seen[-1].shape == expected.shape


def test_wrong_name_is_one_line() -> None:
    with pytest.raises(InputError, match=r"islands: must be names of modules in the model \(first, part, .*, got 'no'"):
        pair(Around(nn.Identity()), islands=["no"])


def test_autocast_holds_in_an_island() -> None:
    eager, model, _ = pair(Around(Experts()))
    found = []
    for its in (eager, model):
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = its(examples(0)).float().pow(2).mean()
        loss.backward()
        found.append([loss.detach(), *(each.grad for each in its.parameters() if each.grad is not None)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_argument_that_an_island_keeps_elsewhere_is_not_written_over() -> None:
    class Keeps(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            self.seen = rows.detach()
            return rows * (1.0 if rows.sum() > 0 else 2.0)

    eager, model, _ = pair(Around(Keeps()))
    assert differences(eager, model, lambda step: (examples(step),), 2) == []
    assert torch.equal(model.part.seen, eager.part.seen)


def test_call_without_a_backward_pass_leaves_nothing_behind() -> None:
    _, model, _ = pair(Around(Experts()))
    model(examples(0))
    gc.collect()
    gc.disable()
    try:
        found = model(examples(0))
        call = weakref.ref(found.grad_fn)
        parameter = model.part.gate.weight
        del found
        assert call() is None
        assert parameter.grad is None
    finally:
        gc.enable()


def test_step_with_an_island_has_eagers_bits() -> None:
    model = Around(NormInside())
    given, targets = (examples(0),), (torch.randint(4, (12,)),)
    lines: list[str] = []
    step = profile(capture(model, given, nn.functional.cross_entropy, targets=targets, report=lines.append))
    import gapless
    from gapless.torch.run import plan

    train = run(plan(step, gapless.monet.problem(step.graph, budget="1x")), model, tolerance=0.0, report=lines.append)
    train(*given, *targets)
    assert "bit-equal to eager's" in lines[-1]
    assert lines[0].startswith("module 'part' runs as an eager island")


def test_buffer_that_the_forward_pass_replaces_has_eagers_bits() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(16))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            self.mean = 0.9 * self.mean + 0.1 * rows.detach().mean(0)
            return rows - self.mean

    eager, model, _ = pair(Around(Average()))
    assert differences(eager, model, lambda step: (examples(step),)) == []


@pytest.mark.parametrize(
    ("part", "line"),
    [
        (lambda rows: rows + rows[rows > 0].sum(), "or put it into a module of its own, which then runs as an eager"),
        (
            lambda rows: torch.utils.checkpoint.checkpoint(torch.sin, rows, use_reentrant=True),
            "use_reentrant=True, which starts a backward pass.*; pass use_reentrant=False",
        ),
    ],
)
def test_what_the_model_itself_does_is_refused_in_a_line(
    part: Callable[[torch.Tensor], torch.Tensor], line: str
) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return part(self.layer(given))

    _, model, _ = pair(Own())
    with pytest.raises(InputError, match=line):
        model(examples(0))


def test_island_that_outgrows_its_plan_says_so_and_has_room_in_the_next() -> None:
    class Positive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            (places,) = torch.where(rows[:, 0] > 0)
            return rows.index_add(0, places, self.layer(rows[places]).tanh())

    eager, model, lines = pair(nn.Sequential(nn.Linear(6, 16), Positive()))
    for bias in (-9.0, 9.0, 9.0):
        for each in (eager, model):
            each.zero_grad()
            with torch.no_grad():
                each[0].bias.fill_(bias)
            each(examples(0, 64)).pow(2).mean().backward()
        assert torch.equal(eager[1].layer.weight.grad, model[1].layer.weight.grad)
    assert [line for line in lines if line.startswith("module '1' keeps ") and "with 1.25 times that" in line]
    peak_bytes, _ = measure_peak(lambda: _step(model, examples(0, 64)), torch.device("cpu"))
    assert peak_bytes <= model.forward.plans[0].peak_bytes < 3 * peak_bytes
