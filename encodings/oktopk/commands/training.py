"""Training by Ok-Topk on processes of this machine; needs the extra `torch`.

`gapless validate sparse`: training by a plan beside training with dense gradients, and by other sparse allreduces.
`gapless validate selection`: what thresholds select in training, and the xi of Assumption 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from gapless.encodings.oktopk.commands.processes import ranks_of
from gapless.encodings.oktopk.question import SelectionQuestion, ValidationQuestion
from gapless.plot.style import PALE, PALETTE
from gapless.processes.plans_to_run import not_run, plan_to_run
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from gapless.torch.sparse.comparison import Trained

__all__ = ["draw_losses", "draw_selection", "validate_selection", "validate_training"]

_MEAN_OF = 10
"""Steps over which the losses of batches that differ are averaged."""


def validate_training(question: ValidationQuestion, session: Session) -> Answer:
    """The losses, the words received, the entries chosen, and what a step takes, of all trainings."""
    plan, report = plan_to_run(question.plan, "oktopk")
    if not report.valid:
        return not_run(report)
    ranks = ranks_of(plan, question.ranks)
    from gapless.torch.sparse.comparison import Comparison, compare_training
    from gapless.torch.sparse.plan import sparse_plan
    from gapless.torch.sparse.relay import EmulatedLink
    from gapless.torch.sparse.training import TrainingTask

    counts = question.steps, ranks, question.learning_rate, question.wait
    how = question.optimizer, question.weight_decay, question.period, question.estimate
    whole = Comparison(
        TrainingTask(question.model, session.options.seed, *counts, *how), sparse_plan(plan), question.beside,
        question.balance_above, question.renewal,
        None if question.bandwidth is None else EmulatedLink(question.bandwidth, question.latency), question.compute,
    )  # fmt: skip
    session.say(f"training {question.model} {len(set(question.beside)) + 2} times in {ranks} processes ...")
    found = compare_training(whole, session.options.stop, session.ranks)
    loss = max(_last(each.losses) for each in found)
    rows = [
        {**vars(each), "first_loss": each.losses[0], "last_loss": _last(each.losses), "to_loss_s": _reached(each, loss)}
        for each in found
    ]
    count = max(1, round(whole.plan.density * whole.plan.regions.length))
    data = {
        "model": question.model, "ranks": ranks, "steps": question.steps, "optimizer": question.optimizer,
        "count": count, "rows": rows, "loss": loss, "is_emulated": question.bandwidth is not None,
    }  # fmt: skip
    return Answer(data, _training_text(question, ranks, found, loss))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _last(values: Sequence[float]) -> float:
    """The mean of the last few."""
    return _mean(values[-_MEAN_OF:])


def _means(losses: Sequence[float]) -> list[float]:
    """After each step, of the last few."""
    return [_mean(losses[max(0, step - _MEAN_OF + 1) : step + 1]) for step in range(len(losses))]


def _reached(run: Trained, loss: float) -> float:
    """Seconds to a loss that it ends with or below, in the mean of as many steps."""
    first = min(_MEAN_OF, len(run.losses)) - 1
    steps = next(step for step, mean in enumerate(_means(run.losses)) if step >= first and mean <= loss)
    return (steps + 1) * run.step_s


def _training_text(question: ValidationQuestion, ranks: int, found: Sequence[Trained], loss: float) -> str:
    to = f"to {loss:.4f}"
    rows = [["", "first loss", "last loss", to, "words a step", "sent", "summed", "step", "selection", "communication"]]
    for each in found:
        chosen = [f"{_mean(counts):,.0f}" if counts else "" for counts in (each.sent, each.summed)]
        parts = [
            "" if part_s is None else format_seconds(part_s) for part_s in (each.selection_s, each.communication_s)
        ]
        rows.append([
            each.name, f"{each.losses[0]:.4f}", f"{_last(each.losses):.4f}", format_seconds(_reached(each, loss)),
            f"{each.received_words:,.0f}", *chosen, format_seconds(each.step_s), *parts,
        ])  # fmt: skip
    plan = found[-1]
    lines = [
        table(rows),
        f"{question.steps} steps of {question.model} on {ranks} ranks, {question.optimizer}; last losses are means of "
        f"{min(_MEAN_OF, question.steps)} steps; words: of the busiest rank; sent, summed: entries in the mean",
        f"the plan's sums were balanced in {plan.balanced_steps} of {question.steps} steps",
    ]
    return "\n".join(lines)


def draw_losses(data: Mapping[str, Any]) -> Figure | SubFigure:
    """A curve of the loss for each training, averaged over a few steps, by step and by second; returns the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    place = "on the emulated wire" if data["is_emulated"] else "on this machine"
    for axes, title in zip(figure.subplots(1, 2, sharey=True), ("step", f"seconds {place}"), strict=True):
        for row, colour in zip(data["rows"], cycle(PALETTE), strict=False):
            means = _means(row["losses"])
            places = [step * (row["step_s"] if title != "step" else 1) for step in range(len(means))]
            axes.plot(places, means, label=f"{row['name']}, {row['received_words']:,.0f} words", color=colour)
        axes.set_xlabel(title)
        axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.axes[0].set_ylabel(f"loss, mean of {_MEAN_OF} steps")
    figure.suptitle(f"{data['model']}, {data['ranks']} ranks", fontsize=9)
    return figure


def validate_selection(question: SelectionQuestion, session: Session) -> Answer:
    """What thresholds select by step, against k, and xi."""
    from gapless.torch.sparse.observed import observed
    from gapless.torch.sparse.training import TrainingTask

    counts = question.steps, question.ranks, question.learning_rate, question.wait
    how = question.optimizer, question.weight_decay, question.period
    task = TrainingTask(question.model, session.options.seed, *counts, *how)
    session.say(f"training {question.model} in {question.ranks} processes ...")
    found = observed(task, question.density, session.options.stop, session.ranks)
    data = {
        "model": question.model, "ranks": question.ranks, "steps": question.steps, "density": question.density,
        "period": question.period, **vars(found), "values": vars(found.values),
        "off": {name: _off(getattr(found, name), found.count) for name in _SELECTED},
        "last": {name: _last_half(getattr(found, name)) / found.count for name in _SELECTED},
        "last_xi": _last_half(found.xi), "most_xi": max(found.xi),
    }  # fmt: skip
    return Answer(data, _selection_text(data))


_SELECTED = {
    "sent": "sent, reused", "summed": "summed, reused", "gaussian": "fitted normal", "adjusted": "the same, adjusted",
}  # fmt: skip
"""What is counted beside k, and its name."""


def _off(counts: Sequence[float], count: int) -> float:
    """The mean deviation from k, as a share of it."""
    return _mean([abs(each - count) for each in counts]) / count


def _last_half(values: Sequence[float]) -> float:
    return _mean(values[len(values) // 2 :])


def _selection_text(data: Mapping[str, Any]) -> str:
    rows = [["entries", "in the mean", "off k by", "over k, last half"]]
    for name, title in _SELECTED.items():
        rows.append([title, f"{_mean(data[name]):,.0f}", f"{data['off'][name]:.1%}", f"{data['last'][name]:.2f}"])
    lines = [
        table(rows),
        f"k is {data['count']:,}; thresholds are found every {data['period']} steps and reused; a normal is fitted in "
        "every step",
        f"xi {data['xi'][0]:.3f} at first, {data['last_xi']:.3f} in the mean of the last half, {data['most_xi']:.3f} "
        f"at most; the paper calls it harmless below the number of ranks, {data['ranks']}",
        f"loss {data['losses'][0]:.4f} to {_last(data['losses']):.4f} in {data['steps']} steps",
    ]
    return "\n".join(lines)


def draw_selection(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Entries selected over k, and xi, by step; values of a step with thresholds; returns the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14.0, 3.6), layout="constrained")
    left, right, values = figure.subplots(1, 3)
    _draw_values(data["values"], values)
    for (name, title), colour in zip(_SELECTED.items(), cycle(PALETTE), strict=False):
        left.plot([each / data["count"] for each in data[name]], label=title, color=colour, linewidth=1)
    left.axhline(1.0, color="black", linewidth=0.6)
    left.set_yscale("log")
    left.set_ylabel("selected entries over k")
    left.legend(fontsize=8)
    right.plot(data["xi"], color=PALETTE[0], linewidth=1)
    right.axhline(data["ranks"], color="black", linewidth=0.6)
    right.set_ylabel("xi, and the number of ranks")
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    figure.suptitle(f"{data['model']}, {data['ranks']} ranks, density {data['density']:.2%}", fontsize=9)
    return figure


def _draw_values(values: Mapping[str, Any], axes: Axes) -> None:
    """A histogram with thresholds."""
    axes.stairs(values["entries"], values["edges"], color=PALE, fill=True)
    for (name, threshold), colour in zip(values["thresholds"].items(), cycle(PALETTE), strict=False):
        for sign in (-1, 1):
            label = f"{name}: {threshold:.3g}" if sign > 0 else None
            axes.axvline(sign * threshold, color=colour, linewidth=1, label=label)
    axes.set_yscale("symlog")
    axes.set_xlabel(f"value, in step {values['step']}; reused for {values['age']} steps")
    axes.set_ylabel("entries")
    axes.legend(fontsize=8)
