"""Sharded steps as one model of whole numbers, written apart from the encoding: any groups of neighbours, gathered in
the order of use and scattered in that of backward passes, in any order of gathers and scatters; passes may wait. For a
few layers.
"""

from __future__ import annotations

from itertools import product

from ortools.sat.python import cp_model

from gapless.encodings.fsdp.step.costs import Costs

__all__ = ["least_step"]


def least_step(costs: Costs, most: int) -> int | None:
    """The least step of whole times and sizes; None where none is within `most`, or within memory."""
    return _Exact(costs, most).solve()


class _Exact:
    def __init__(self, costs: Costs, most: int) -> None:
        self.costs, self.most, self.model = costs, most, cp_model.CpModel()
        self.sizes = [int(n) for n in costs.parameters]
        count = costs.layers
        self.begin = [self.model.new_int_var(0, most, f"begin {p}") for p in range(2 * count)]
        self.over = [begin + int(s) for begin, s in zip(self.begin, costs.duration_s, strict=True)]
        self.step = self.model.new_int_var(0, most, "step")
        self.network: list[cp_model.IntervalVar] = []
        self.held: list[tuple[cp_model.IntervalVar, int]] = []
        self.gathers: list[tuple[int, cp_model.IntVar, cp_model.IntVar, int]] = []
        self.scatters: list[tuple[int, cp_model.IntVar, cp_model.IntVar, int]] = []

    def solve(self) -> int | None:
        model, count = self.model, self.costs.layers
        for p in range(1, 2 * count):
            model.add(self.begin[p] >= self.over[p - 1])
        model.add(self.step >= self.over[-1])
        groups = [(a, b) for a, b in product(range(count), repeat=2) if a <= b]
        kept = {group: self._gather(group, self.over[2 * count - 1 - group[0]], (True, True)) for group in groups}
        forward = {group: self._gather(group, self.over[group[1]], (True, False)) for group in groups}
        backward = {group: self._gather(group, self.over[2 * count - 1 - group[0]], (False, True)) for group in groups}
        scatters = {group: self._scatter(group) for group in groups}
        for layer in range(count):
            here = [group for group in groups if group[0] <= layer <= group[1]]
            model.add_exactly_one([each[group] for each in (kept, forward) for group in here])
            model.add_exactly_one([each[group] for each in (kept, backward) for group in here])
            model.add_exactly_one([scatters[group] for group in here])
        model.add_no_overlap(self.network)
        self._in_order(self.gathers)
        self._in_order(self.scatters)
        if self.costs.memory_bytes < float("inf"):
            intervals, sizes = zip(*self.held, strict=True)
            model.add_cumulative(list(intervals), list(sizes), int(self.costs.memory_bytes))
        model.minimize(self.step)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE:
            return None
        assert status == cp_model.OPTIMAL
        return round(solver.objective_value)

    def _gather(
        self, group: tuple[int, int], until: cp_model.LinearExprT, serves: tuple[bool, bool]
    ) -> cp_model.IntVar:
        """Whether there is this one, for forward passes, backward passes or both."""
        model, count = self.model, self.costs.layers
        size = sum(self.sizes[group[0] : group[1] + 1])
        is_there, start, end, duration = self._collective(int(self.costs.latency_s + size * self.costs.gather_s))
        self.gathers.append((group[0] if serves[0] else 2 * count - 1 - group[1], is_there, start, duration))
        for layer in range(group[0], group[1] + 1):
            for is_served, position in zip(serves, (layer, 2 * count - 1 - layer), strict=True):
                if is_served:
                    model.add(self.begin[position] >= end).only_enforce_if(is_there)
        self._hold(start, until, is_there, int(size * self.costs.gathered_bytes))
        return is_there

    def _scatter(self, group: tuple[int, int]) -> cp_model.IntVar:
        model, count = self.model, self.costs.layers
        size = sum(self.sizes[group[0] : group[1] + 1])
        is_there, start, end, duration = self._collective(int(self.costs.latency_s + size * self.costs.scatter_s))
        self.scatters.append((2 * count - 1 - group[1], is_there, start, duration))
        model.add(start >= self.over[2 * count - 1 - group[0]]).only_enforce_if(is_there)
        model.add(self.step >= end).only_enforce_if(is_there)
        for layer in range(group[0], group[1] + 1):
            gradient = int(self.sizes[layer] * self.costs.gradient_bytes)
            self._hold(self.begin[2 * count - 1 - layer], end, is_there, gradient)
        return is_there

    def _in_order(self, collectives: list[tuple[int, cp_model.IntVar, cp_model.IntVar, int]]) -> None:
        """Each after those of earlier positions."""
        for (one, is_one, start, duration), (two, is_two, later, _) in product(collectives, repeat=2):
            if one < two:
                self.model.add(later >= start + duration).only_enforce_if(is_one, is_two)

    def _collective(self, duration: int) -> tuple[cp_model.IntVar, cp_model.IntVar, cp_model.LinearExprT, int]:
        model = self.model
        is_there, start = model.new_bool_var(""), model.new_int_var(0, self.most, "")
        self.network.append(model.new_optional_fixed_size_interval_var(start, duration, is_there, ""))
        return is_there, start, start + duration, duration

    def _hold(
        self, start: cp_model.LinearExprT, end: cp_model.LinearExprT, is_there: cp_model.IntVar, size: int
    ) -> None:
        length = self.model.new_int_var(0, self.most, "")
        self.held.append((self.model.new_optional_interval_var(start, length, end, is_there, ""), size))
