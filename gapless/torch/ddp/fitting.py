"""From what hooks took to the costs of modes: flat up to a size, then a line, through what was measured at several."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of
from gapless.profiles.compressors.method import Method
from gapless.profiles.gradients.communication import Network, all_gather_cost, all_reduce_cost, in_messages
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction, PointsCost
from gapless.profiles.gradients.modes import Mode
from gapless.torch.ddp.beside import StepWork
from gapless.torch.ddp.measuring import Gradients, HookTimes
from gapless.units import format_bytes

__all__ = ["FittedMode", "fitted_mode", "on_network"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FittedMode:
    """A mode, and how far it is from what was measured.

    `spread`: of repeated measurements, the middle half as a share of the median, the median over sizes. `apart`: the
    most that measured encoding, sending and decoding differ together from the fitted ones, as a share of these;
    `where`: of how many bytes before compression.
    """

    mode: Mode
    spread: float
    apart: float
    where: float

    def check(self, within: float) -> None:
        """Raise `InputError` where the fit is further off than this share."""
        if self.apart > within:
            size = format_bytes(round(self.where))
            rule = f"mode {self.mode.name!r}: fitted costs must be within {within:.0%} of all that was measured"
            way_out = f"take more --repeats or a quieter machine, or accept it with --within {self.apart + 0.005:.2f}"
            raise InputError(f"{rule}, got {self.apart:.0%} at {size}, repeats {self.spread:.0%} apart; {way_out}")


def fitted_mode(
    name: str, gradients: Gradients, times: Sequence[HookTimes], network: Network | None = None,
    works: Sequence[StepWork] = (), slowdown: float = 1.0,
) -> FittedMode:  # fmt: skip
    """The mode of what was measured of it; `network`: what its collectives take, instead of what they took; what is
    computed between them takes what it took. `works`: its work beside a backward pass, in which encode and decode count
    where it is there; a second of it takes `slowdown` seconds of a core that several ranks share.
    """
    method = method_of(name)
    size_bytes = np.array(gradients.size_bytes, dtype=np.float64)
    number_bytes = _number_bytes(gradients)
    sent = np.array([method.added_bytes(shape, number_bytes) for shape in gradients.shapes])
    coding = _coding(times, works, slowdown)
    encoded = _encoded_bytes(method, gradients, size_bytes, coding)
    sums = {title: _sums(column, times) for title, column in (("encoded", encoded), ("sent", sent))}
    coded = _sums(encoded, coding)
    encode = _flat_then_line(coded, np.array([each.encode_s for each in coding]))
    decode = _flat_then_line(coded, np.array([each.decode_s for each in coding]))
    send = _flat_then_line(sums["sent"], np.array([each.send_s for each in times]))
    between = _line(sums["sent"], np.array([each.between_s for each in times]))
    if works:  # what is off are sends alone, and coding beside a backward pass
        coding_s = encode(sums["encoded"]) + decode(sums["encoded"])
        taken_s = np.append(
            coding_s + [each.send_s for each in times],
            [each.encode_s + each.decode_s for each in coding] + send(_sums(sent, coding)),
        )
        lines = np.append(coding_s + send(sums["sent"]), encode(coded) + decode(coded) + send(_sums(sent, coding)))
        sizes = np.append(_sums(size_bytes, times), _sums(size_bytes, coding))
    else:
        taken_s = np.array([each.encode_s + each.send_s + each.decode_s for each in times])
        lines, sizes = encode(coded) + decode(coded) + send(sums["sent"]), _sums(size_bytes, times)
    mode = Mode(
        name=name,
        communication=send if network is None else on_network(method, network, between),
        encode=encode,
        decode=decode,
        error=method.error,
        encoded_bytes=None if (encoded == size_bytes).all() else tuple(encoded.tolist()),
        sent_bytes=None if (sent == size_bytes).all() else tuple(sent.tolist()),
        communication_work=_sending_work(sent, works).scaled(slowdown),
    )
    apart = np.abs(taken_s / lines - 1)
    worst = int(apart.argmax())
    return FittedMode(mode, statistics.median(each.spread for each in times), float(apart[worst]), float(sizes[worst]))


@dataclass(frozen=True)
class _Coded:
    """What it took to encode and to decode gradients `first` .. `last`."""

    first: int
    last: int
    encode_s: float
    decode_s: float


def _coding(times: Sequence[HookTimes], works: Sequence[StepWork], slowdown: float) -> list[_Coded]:
    """Of hooks beside a backward pass, else by themselves."""
    if not works:
        return [_Coded(each.first, each.last, each.encode_s, each.decode_s) for each in times]
    return [
        _Coded(*group, slowdown * encode_s, slowdown * decode_s)
        for work in works
        for group, encode_s, decode_s in zip(work.groups, work.encode_s, work.decode_s, strict=True)
    ]


def _sending_work(sent: Floats, works: Sequence[StepWork]) -> AffineCost:
    """A line through the work of all collectives of a step: so much for each, and for each byte."""
    if not works:
        return FREE
    columns = np.array([[len(work.groups), sent.sum()] for work in works])
    alpha_s, beta_s_per_byte = _not_negative(columns, np.array([work.sending_s for work in works]))
    return AffineCost(float(alpha_s), float(beta_s_per_byte))


def _number_bytes(gradients: Gradients) -> int:
    """Of one entry."""
    shape, size = next(
        (shape, size) for shape, size in zip(gradients.shapes, gradients.size_bytes, strict=True) if size
    )
    return size // int(np.prod(shape))


def _sums(column: Floats, times: Sequence[HookTimes] | Sequence[_Coded]) -> Floats:
    """Of each group that was measured."""
    prefix = np.append(0.0, np.cumsum(column))
    return np.array([prefix[each.last + 1] - prefix[each.first] for each in times])


def _encoded_bytes(method: Method, gradients: Gradients, size_bytes: Floats, times: Sequence[_Coded]) -> Floats:
    """What encoding and decoding take time in proportion to: bytes, and for factors so many more for each matrix."""
    if not method.rank:
        return size_bytes
    matrices = np.array([float(method.is_factored(shape)) for shape in gradients.shapes])
    columns = np.column_stack([np.ones(len(times)), _sums(size_bytes, times), _sums(matrices, times)])
    _, per_byte, per_matrix = _not_negative(columns, np.array([each.encode_s + each.decode_s for each in times]))
    return size_bytes + matrices * per_matrix / per_byte if per_byte > 0 else size_bytes


_NO_MORE = 1e-12
"""A sum of squares that is lower by less isn't: exact lines stay lines."""


def _flat_then_line(sizes: Floats, taken_s: Floats) -> CostFunction:
    """Constant up to one of the sizes, where starting it costs most, in proportion to what is above; or a line.

    The size from which it rises is the one with the least squares of relative errors.
    """
    best, knot = _line(sizes, taken_s), 0.0
    least = _squares(best(sizes), taken_s)
    for at in np.unique(sizes)[:-1].tolist():
        found = _line(np.maximum(sizes - at, 0.0), taken_s)
        squares = _squares(found(np.maximum(sizes - at, 0.0)), taken_s)
        if at > 0 and squares < least - _NO_MORE:
            best, knot, least = found, at, squares
    if not knot or not best.beta_s_per_byte:
        return best
    return PointsCost(((knot, best.alpha_s), (2 * knot, float(best(knot)))))


def _squares(fitted_s: Floats, taken_s: Floats) -> float:
    return float(np.square(fitted_s / np.maximum(taken_s, 1e-9) - 1).sum())


def _line(sizes: Floats, taken_s: Floats) -> AffineCost:
    alpha_s, beta_s_per_byte = _not_negative(np.column_stack([np.ones(len(sizes)), sizes]), taken_s)
    return AffineCost(float(alpha_s), float(beta_s_per_byte))


def _not_negative(columns: Floats, taken_s: Floats) -> Floats:
    """Least squares of relative errors; a column that would count below zero is left out."""
    weights = 1 / np.maximum(taken_s, 1e-9)
    kept = list(range(columns.shape[1]))
    while True:
        solution, *_ = np.linalg.lstsq(columns[:, kept] * weights[:, None], taken_s * weights, rcond=None)
        if (solution >= 0).all() or len(kept) == 1:
            break
        del kept[int(solution.argmin())]
    coefficients = np.zeros(columns.shape[1])
    coefficients[kept] = np.maximum(solution, 0.0)
    return coefficients


def on_network(method: Method, network: Network, between: AffineCost) -> CostFunction:
    """All messages of a bucket: each has the network's latency, their bytes go over it once."""
    cost = (all_reduce_cost if method.collective == "all_reduce" else all_gather_cost)(network)
    return in_messages(cost, method.messages).plus(between)
