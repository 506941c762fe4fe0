"""`gapless validate regimes`: Accordion's critical phases by norms, beside those by the Hessian's top eigenvalue.

Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.ranks.question import RegimesQuestion
from gapless.encodings.ranks.training.tracing import learning_rates, recipe_of
from gapless.errors import InputError
from gapless.plot.style import BLUE, GREEN, ORANGE, PURPLE, VERMILION, check_plot, finish
from gapless.profiles.compression.control import Detection, critical_epochs
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw_comparison", "validate_regimes"]


def validate_regimes(question: RegimesQuestion, session: Session) -> Answer:
    """Train once, and say which epochs are critical by either, and what entries successive gradients share."""
    from gapless.torch.regimes import observed_regimes

    first = 2 * question.interval
    if question.epochs <= first:
        rule = f"looks {question.interval} epochs apart are compared after {first} epochs, got {question.epochs}"
        raise InputError(f"epochs: {rule}; train for more")
    rates = learning_rates(question)
    recipe = replace(recipe_of(question, session, rates), workers=1)
    session.say(f"training {question.model} for {question.epochs} epochs ...")
    found = observed_regimes(recipe, question.share, question.iterations, question.examples, session.options.stop)
    norm = np.linalg.norm(np.array(found.norms), axis=1)
    eigenvalue = np.abs(np.array(found.eigenvalues))
    by_norm, by_eigenvalue = (_by_looks(values, question) for values in (norm, eigenvalue))
    data = {
        "model": question.model, "epochs": question.epochs, "eta": question.eta, "interval": question.interval,
        "learning_rates": list(rates), "norm": norm.tolist(), **vars(found), "layers": list(found.layers),
        "critical_by_norm": by_norm, "critical_by_eigenvalue": by_eigenvalue, "compared": question.epochs - first,
        "agree": sum(one == other for one, other in zip(by_norm[first:], by_eigenvalue[first:], strict=True)),
        "correlation": _correlation(norm, eigenvalue), "share": question.share,
        "mean_overlap": float(np.mean(found.overlaps)), "mean_overlap_with_mean": float(np.mean(found.mean_overlaps)),
    }  # fmt: skip
    return Answer(data, _text(data))


def _by_looks(values: Floats, question: RegimesQuestion) -> list[bool]:
    """Which epochs the rule takes for critical by looks at these values alone, whatever the learning rate does."""
    detection = Detection(question.eta, question.interval, 0)
    return [bool(each) for each in critical_epochs(values[:, None], np.ones(len(values)), detection)[:, 0]]


def _correlation(norm: Floats, eigenvalue: Floats) -> float | None:
    """Of their logarithms over epochs; None where one of them has none, or doesn't change."""
    if not (norm.all() and eigenvalue.all()):
        return None
    logs = np.log(norm), np.log(eigenvalue)
    return float(np.corrcoef(*logs)[0, 1]) if all(np.ptp(each) for each in logs) else None


def _text(data: Mapping[str, Any]) -> str:
    rows = [["epoch", "norm", "critical", "top eigenvalue", "critical", "overlap", "with the mean", "loss held out"]]
    for epoch in range(data["epochs"]):
        marks = ["yes" if data[name][epoch] else "" for name in ("critical_by_norm", "critical_by_eigenvalue")]
        rows.append([
            str(epoch), f"{data['norm'][epoch]:.4g}", marks[0], f"{data['eigenvalues'][epoch]:.4g}", marks[1],
            f"{data['overlaps'][epoch]:.1%}", f"{data['mean_overlaps'][epoch]:.1%}", f"{data['losses'][epoch]:.4f}",
        ])  # fmt: skip
    correlation = "none" if data["correlation"] is None else f"{data['correlation']:.2f}"
    return "\n".join([
        table(rows),
        f"norms and eigenvalues say the same of {data['agree']} of {data['compared']} epochs that looks compare; "
        f"correlation of their logarithms {correlation}",
        f"of a gradient's largest {data['share']:.0%} of entries, {data['mean_overlap']:.1%} are also the next one's, "
        f"{data['mean_overlap_with_mean']:.1%} the epoch's mean gradient's",
        f"processor time: norms {format_seconds(data['norm_s'])}, eigenvalues {format_seconds(data['eigenvalue_s'])} "
        f"({data['products']} products with the Hessian)",
    ])  # fmt: skip


def draw_comparison(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Norm and eigenvalue as shares of their largest with critical epochs marked, and overlaps, by epoch."""
    check_plot()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    lines = (("norm", "critical_by_norm", "norm of the gradient", BLUE),
             ("eigenvalues", "critical_by_eigenvalue", "top eigenvalue of the Hessian", VERMILION))  # fmt: skip
    for name, critical, title, colour in lines:
        values = np.abs(np.array(data[name]))
        shares, marked = values / (values.max() or 1.0), np.flatnonzero(data[critical])
        above.plot(shares, color=colour, label=title)
        above.plot(marked, shares[marked], "o", color=colour, label="critical by it", gid=critical)
    above.set(ylabel="share of the largest", ylim=(0, 1.05))
    below.plot(data["overlaps"], color=GREEN, label="with the next gradient")
    below.plot(data["mean_overlaps"], color=PURPLE, label="with the epoch's mean")
    below.axhline(data["share"], color=ORANGE, linestyle="--", linewidth=1, label="of random entries")
    below.set(xlabel="epoch", ylabel=f"overlap of the largest {data['share']:.0%}", ylim=(0, 1))
    for ax in (above, below):
        finish(ax, grid=True, legend="inside")
    return figure
