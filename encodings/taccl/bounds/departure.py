"""Departure: what leaves its source late has far to go, and what leaves early leaves in small messages.

Let a set of ranks own bytes that ranks outside want. By time t those have left the set that are in a message out of it
that is over by t. All others come to a rank v later: straight from the set, or from elsewhere, from t on and no sooner
than `late_s` after it, since they must get to v's neighbours first. So (for all v together, each at its rate of taking
in from elsewhere)

    sum over v of (wanted - left by t - what v gets straight from the set after t) <= sum of rate * (T - t - late_s)

and what all get straight from the set is no more than what leaves it after t. That is a line in t, below which what has
left must not fall. But what has left through a port grows in steps, a message each, and a message less for each alpha:
through k messages that are over by t no more than rate * (t - k alpha). *One port*: messages that end as late as the
line lets them bring most; so a few steps show whether T is enough. *Several*: they may take turns, so that the steps
even out; what they are below rate * t on the mean is least where each message is an alpha shorter than the last.

Few ranks have late bytes at first, and pass them on: if p messages leave a rank at once, and q the set, A(k + 1) =
(1 + p) A(k) + q ranks have some by k + 1 alphas after t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.link_costs import (
    SIDES,
    distances_s,
    least_time_s,
    links_into,
    links_within,
    most_at_once,
    port_of_links,
    rate_bytes_per_s,
)
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.rotations import find_rotations
from gapless.topologies.topology import Topology

__all__ = ["departure_bound_s"]


_LAST_DIGITS = 1e-6
"""Where the search for the time ends, relative to it; it stays below."""
_MOST_KINDS = 8
"""Sources of bytes that are looked at, those with most bytes first."""


@dataclass(frozen=True)
class _Source:
    """A set of ranks and what must leave it. `rate`, `alpha_s`: of each of its ports; bytes a second, seconds."""

    wanted_bytes: float
    rate: Floats
    alpha_s: float


@dataclass(frozen=True)
class _Sinks:
    """Ranks that want it: how many, whether some have links from the source, the rates at which they take in from
    others together, the sum of these times their `late_s`, and the largest of them.
    """

    count: int
    is_near: bool
    rate: float
    late_bytes: float
    latest_s: float


def departure_bound_s(problem: Chunked) -> float:
    """Seconds for what one rank owns and several others want, of a problem that doesn't reduce."""
    topology, best_s = problem.logical.topology, 0.0
    if not len(topology.links) or not (topology.beta_s_per_byte > 0).all() or not topology.alpha_s.min() > 0:
        return 0.0
    orbit = find_rotations(topology).rank_orbit
    seen: set[bytes] = set()
    alike, count = np.unique(np.column_stack([problem.owners, problem.wanted]), axis=0, return_counts=True)
    for k in np.argsort(-count, kind="stable").tolist():
        owner, wanted = int(alike[k, 0]), alike[k, 1:].astype(np.bool_)
        is_all = bool(wanted.sum() == len(wanted) - 1)
        key = f"{orbit[owner]} {count[k]}".encode() if is_all else alike[k].tobytes()
        if wanted.sum() < 2 or key in seen or len(seen) >= _MOST_KINDS:
            continue
        seen.add(key)
        node = topology.node_of == topology.node_of[owner]
        alone = np.arange(len(wanted)) == owner
        for inside in (alone, node):
            if (wanted & ~inside).any():
                best_s = max(
                    best_s, _out_of_s(topology, inside, wanted & ~inside, float(count[k]) * problem.chunk_bytes)
                )
    return best_s


def _out_of_s(topology: Topology, inside: Mask, wanted: Mask, wanted_bytes: float) -> float:
    """The bound for bytes that leave a set of ranks for some others."""
    leaving = links_into(topology, ~inside)
    sinks = _sinks_of(topology, inside, wanted, leaving)
    best_s = 0.0
    for side in SIDES:
        ports, port = np.unique(port_of_links(topology, leaving, side), return_inverse=True)
        rate = np.zeros(len(ports))
        np.maximum.at(rate, port, 1 / topology.beta_s_per_byte[leaving])
        source = _Source(wanted_bytes, rate, float(topology.alpha_s[leaving].min()))
        for some in sinks:
            best_s = max(best_s, _least_s(source, some))
    return best_s


def _sinks_of(topology: Topology, inside: Mask, wanted: Mask, leaving: Ids) -> list[_Sinks]:
    """All that want it, those of them without a link from the source, and the farthest of these."""
    outside = links_within(topology, ~inside)
    near = np.zeros_like(inside)
    near[topology.link_target[leaving]] = True
    away_s = distances_s(topology, topology.alpha_s, np.flatnonzero(near), outside).min(axis=0)
    late_s, rate = np.zeros(len(inside)), np.zeros(len(inside))
    for rank in np.flatnonzero(wanted).tolist():
        into = outside[topology.link_target[outside] == rank]
        if len(into):
            rate[rank] = rate_bytes_per_s(topology, into)
            late_s[rank] = float((away_s[topology.link_source[into]] + topology.alpha_s[into]).min())
    if not np.isfinite(late_s).all():
        return []
    first, at_once = most_at_once(topology, leaving) * int(inside.sum()), most_at_once(topology, outside)
    found = []
    far = np.flatnonzero(wanted & ~near)
    for ranks in (np.flatnonzero(wanted), far, far[np.argsort(-late_s[far], kind="stable")[:1]]):
        if len(ranks):
            spread_s = _spread_s(len(ranks), first, at_once, float(topology.alpha_s.min()))
            late_bytes = max(
                float((rate[ranks] * late_s[ranks]).sum()), float((np.sort(rate[ranks])[::-1] * spread_s).sum())
            )
            latest_s = max(float(late_s[ranks].max()), float(spread_s[-1]))
            found.append(
                _Sinks(len(ranks), bool(near[ranks].any()), float(rate[ranks].sum()), late_bytes, latest_s)
            )  # fmt: skip
    return found


def _spread_s(count: int, first: int, at_once: int, alpha_s: float) -> Floats:
    """How late the first, second, ... of some ranks can have late bytes from elsewhere than the source, ascending."""
    late_s, step, reached = np.full(count, alpha_s), 1, first
    while reached < count:
        late_s[reached:] = step * alpha_s
        step, reached = step + 1, (1 + at_once) * reached + first
    return late_s


def _least_s(source: _Source, sinks: _Sinks) -> float:
    """The least time at which neither test says that it isn't enough."""
    others = sinks.count - sinks.is_near
    if not others:
        return 0.0
    low_s = source.alpha_s + source.wanted_bytes / float(source.rate.sum())
    return least_time_s(lambda time_s: not _is_too_little(source, sinks, time_s), low_s, low_s, _LAST_DIGITS)


def _is_too_little(source: _Source, sinks: _Sinks, time_s: float) -> bool:
    """Whether what has left can't be above the line `slope * t - ahead`, for t from 0 to `until_s`."""
    others, out = sinks.count - sinks.is_near, float(source.rate.sum())
    straight = out * (time_s - source.alpha_s) if sinks.is_near else 0.0
    ahead = (sinks.rate * time_s - sinks.late_bytes + straight - sinks.count * source.wanted_bytes) / others
    slope, until_s = sinks.rate / others, time_s - sinks.latest_s
    if until_s <= 0:
        return False
    if ahead < 0:
        return True
    mean_bytes = (out - slope) * until_s / 2 + ahead
    if out * _mean_wait_s(until_s, source.alpha_s) > mean_bytes * (1 + 1e-9):
        return True
    return len(source.rate) == 1 and slope > 0 and _falls_below(out, source.alpha_s, slope, ahead, until_s)


def _mean_wait_s(until_s: float, alpha_s: float) -> float:
    """How long on the mean what could have left by now still waits for its message to end, or has lost to alphas."""
    count = int((1 + np.sqrt(1 + 8 * until_s / alpha_s)) / 2)  # the last one is still longer than nothing
    longest_s = until_s / count + alpha_s * (count - 1) / 2
    length_s = longest_s - alpha_s * np.arange(count)
    return longest_s - float((length_s**2).sum()) / (2 * until_s)


def _falls_below(rate: float, alpha_s: float, slope: float, ahead: float, until_s: float) -> bool:
    """Whether what leaves through one port falls below the line, each message as late as it can be."""
    left, messages = 0.0, 0
    while (end_s := (left + ahead) / slope) < until_s:
        messages += 1
        more = rate * (end_s - messages * alpha_s)
        if more <= left * (1 + 1e-9):
            return True
        left = more
    return False
