"""Plans for `torch.compile`: what is saved for the backward pass, and what it recomputes and when, within a budget.

::

    model = torch.compile(model, backend="gapless", options={"budget": "0.6x"})

The kernels are Inductor's, or eager's. Needs the extra `torch`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from gapless import __version__
from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.options import SolveOptions
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.question.fields import Share, SizeOrShare
from gapless.torch.compiler import aot
from gapless.torch.compiler.partition import captured, partitioned, plan_for
from gapless.torch.library import Module, torch
from gapless.torch.run.events import recomputed_share
from gapless.torch.run.step_plan import StepPlan
from gapless.units import format_bytes

__all__ = ["Compiler", "backend"]


_KEPT = "took a compiled graph of PyTorch's cache, with the plan that was made for it then; nothing is solved"


def _say(text: str) -> None:
    print(f"gapless: {text}", file=sys.stderr)


@dataclass
class Compiler:
    """A backend of `torch.compile`; `backend="gapless"` is one with the options that it is given.

    `budget`: the most that one call of a compiled graph may hold, in bytes above parameters, buffers and arguments, or
    a share of what it holds when nothing is recomputed, as "0.6x"; a graph that can't do with its share takes the least
    that a plan was found for, and the line says so. A model that PyTorch compiles in several graphs has the budget for
    each. `inductor`: whether kernels are Inductor's, else eager's. `time_limit_s`, `gap`: of each solve.
    `cache`: a file for what was measured of operators. `report`: is called with a line for each plan; by default it
    goes to stderr. `plans`: those that were made, in their order; what Inductor has on disk of an earlier run follows
    the plan of then, which isn't among them.

    Compiling raises `InputError` where nothing fits the budget, wrapped as PyTorch wraps what its backends raise.
    """

    budget: str | int = "1.0x"
    inductor: bool = True
    time_limit_s: float = 30.0
    gap: float = 0.02
    cache: str | None = None
    report: Callable[[str], None] = _say
    plans: list[StepPlan] = field(default_factory=list, init=False)

    def __repr__(self) -> str:
        return f"gapless within {self.budget}"

    def __call__(self, module: Module, inputs: Sequence[object]) -> aot.Compiled:
        """Compile a graph."""
        if self.inductor:
            key = f"gapless {__version__} {self.budget} {self.gap} {self.time_limit_s}"
            compiled, was_kept = aot.in_inductor(module, inputs, self.partition, key)
            if was_kept:
                self.report(_KEPT)
            return compiled
        return aot.in_eager(module, inputs, self.partition)

    def partition(
        self, module: torch.fx.GraphModule, inputs: Sequence[object], *, num_fwd_outputs: int, **options: object
    ) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
        """The forward and the backward module of a joint graph, as PyTorch asks a partitioner for them."""
        with aot.outside():
            graph = aot.aot_graph(module, num_fwd_outputs)
            if graph is not None:
                step = captured(graph, self.cache)
                plan = plan_for(step, self.budget, SolveOptions(time_limit_s=self.time_limit_s, gap=self.gap))
        if graph is None:
            options.pop("compiler", None)
            return aot.unplanned(module, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        self.plans.append(plan)
        self.report(_line(plan, self.budget))
        return partitioned(graph, plan)


def backend(module: Module, inputs: Sequence[object], options: Mapping[str, object] | None = None) -> aot.Compiled:
    """What `torch.compile(model, backend="gapless", options=...)` runs; the options are those of `Compiler`.

    Raises `InputError` for one that there isn't.
    """
    known = [field.name for field in fields(Compiler) if field.init]
    for name in options or {}:
        if name not in known:
            hint = suggestion(name, known)
            rule = f"options: must be among {', '.join(known)}, got {name!r}"
            raise InputError(f"{rule}; {hint}" if hint else rule)
    return Compiler(**(options or {}))(module, inputs)  # type: ignore[arg-type]


def _line(plan: StepPlan, budget: str | int) -> str:
    assert plan.result is not None
    graph = plan.step.graph
    size = f"{len(graph.forward) - 1} forward and {len(graph.backward)} backward operators"
    memory = f"at most {format_bytes(plan.peak_bytes)}"
    line = f"a graph of {size}: {memory}, recomputes {recomputed_share(plan):.1%}, {plan.result.status.value}"
    whole_bytes = peak_without_saving_bytes(graph)
    asked = SizeOrShare()(budget)
    if isinstance(asked, Share) and plan.peak_bytes > asked.ratio * whole_bytes:
        line += f"; that is {plan.peak_bytes / whole_bytes:.2f}x, the least that was found"
    return line
