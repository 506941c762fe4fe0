"""`gapless validate sparse`: training by a plan beside training with dense gradients and by TopkA. Needs `torch`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

from gapless.errors import InputError
from gapless.plans_to_run import not_run, plan_to_run
from gapless.plot.style import PALETTE, new_axes
from gapless.system import Answer, Session

__all__ = ["draw_losses", "validate_training"]

_MEAN_OF = 10
"""Steps over which the losses of batches that differ are averaged."""


def validate_training(values: Mapping[str, Any], session: Session) -> Answer:
    """The losses, and the words received, of all three."""
    plan, report = plan_to_run(values["plan"], "oktopk")
    if not report.valid:
        return not_run(report)
    ranks = plan.schedule.topology.device_count
    if values["ranks"] not in (None, ranks):
        raise InputError(f"ranks: must be those of the plan, {ranks}, got {values['ranks']}; plan for as many")
    from gapless.torch.sparse.plan import sparse_plan
    from gapless.torch.sparse.training import TrainingTask, compare_training

    counts = (values[name] for name in ("learning_rate", "wait"))
    task = TrainingTask(values["model"], session.options.seed, values["steps"], ranks, *counts)
    session.say(f"training {values['model']} three times in {ranks} processes ...")
    found = compare_training(task, sparse_plan(plan), session.options.stop, session.ranks)
    rows = [
        {
            "name": each.name,
            "first_loss": _mean(each.losses[:1]),
            "last_loss": _mean(each.losses[-_MEAN_OF:]),
            "received_words": each.received_words,
            "losses": list(each.losses),
        }
        for each in found
    ]
    data = {"model": values["model"], "ranks": ranks, "steps": values["steps"], "rows": rows}
    return Answer(data, _text(data))


def _mean(losses: tuple[float, ...]) -> float:
    return sum(losses) / len(losses)


def _text(data: Mapping[str, Any]) -> str:
    lines = [f"{'':<8} {'first loss':>10} {'last loss':>10} {'words a step':>14}"]
    for row in data["rows"]:
        losses = f"{row['first_loss']:>10.4f} {row['last_loss']:>10.4f}"
        lines.append(f"{row['name']:<8} {losses} {row['received_words']:>14,.0f}")
    last = f"last losses are means of {min(_MEAN_OF, data['steps'])} steps; words: received by the busiest rank"
    return "\n".join([*lines, f"{data['steps']} steps of {data['model']} on {data['ranks']} ranks; {last}"])


def draw_losses(data: Mapping[str, Any]) -> Any:
    """A curve of the loss for each training, averaged over a few steps; returns the figure."""
    axes = new_axes(6.0, 3.6)
    for row, colour in zip(data["rows"], cycle(PALETTE), strict=False):
        losses = row["losses"]
        means = [_mean(losses[max(0, step - _MEAN_OF + 1) : step + 1]) for step in range(len(losses))]
        axes.plot(range(len(losses)), means, label=f"{row['name']}, {row['received_words']:,.0f} words", color=colour)
    axes.set_xlabel("step")
    axes.set_ylabel(f"loss, mean of {_MEAN_OF} steps")
    axes.set_title(f"{data['model']}, {data['ranks']} ranks", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return axes.figure
