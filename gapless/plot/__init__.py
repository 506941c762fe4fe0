"""Pictures of plans: axes in, axes out. matplotlib is the extra `plot`, imported only when something is drawn."""

from __future__ import annotations

from gapless.plot.curves import TradeoffPoint, plot_convergence, plot_tradeoff, write_plot
from gapless.plot.gantt import plot_gantt, plot_resources
from gapless.plot.memory import plot_memory
from gapless.plot.network import plot_topology
from gapless.plot.style import check_plot
from gapless.plot.sweep_curves import draw_sweep, plot_sweep

__all__ = [
    "TradeoffPoint",
    "check_plot",
    "draw_sweep",
    "plot_convergence",
    "plot_gantt",
    "plot_memory",
    "plot_resources",
    "plot_sweep",
    "plot_topology",
    "plot_tradeoff",
    "write_plot",
]
