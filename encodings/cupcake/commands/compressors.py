"""What compressors take on this machine: encode and decode of a profile's gradients, beside what is published.

Needs the extra `torch`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.encodings.cupcake.question import CompressorsQuestion
from gapless.errors import InputError
from gapless.profiles.compressors.grammar import method_of, named_compressor
from gapless.profiles.gradients.named import find_fusion_profile
from gapless.report.text import table
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.compression import CodingTimes

__all__ = ["profile_compressors"]


@dataclass(frozen=True)
class _Row:
    """A compressor that was measured; `published_s`: of a V100, None where nobody has published it."""

    times: CodingTimes
    size_bytes: int
    collective: str
    published_s: float | None

    @property
    def data(self) -> dict[str, object]:
        """In plain values."""
        times = self.times
        return {
            "compressor": times.mode, "encode_s": statistics.median(times.encode_s),
            "decode_s": statistics.median(times.decode_s), "median_s": times.median_s, "least_s": min(times.both_s),
            "most_s": max(times.both_s), "sent_bytes": times.sent_bytes, "ratio": self.size_bytes / times.sent_bytes,
            "collective": self.collective, "published_s": self.published_s,
        }  # fmt: skip


def profile_compressors(question: CompressorsQuestion, session: Session) -> Answer:
    """Measure each compressor on random gradients of the profile's shapes."""
    from gapless.torch.compression import coding_times

    profile = find_fusion_profile(question.profile)
    if not profile.shapes:
        raise InputError(f"profile {profile.name!r}: must have the shapes of its tensors; measure it again")
    shapes, rows = [tuple(shape) for shape in profile.shapes], []
    for mode in question.compressor:
        method_of(mode)  # refused before the first takes long
    for mode in dict.fromkeys(question.compressor):
        session.say(f"measuring {mode} ...")
        times = coding_times(mode, shapes, question.ranks, question.repeats, session.options.seed)
        collective = method_of(mode).collective.replace("_", "-")
        rows.append(
            _Row(times, profile.total_bytes, collective, _published_s(mode, question.ranks, profile.total_bytes))
        )
    data = {
        "profile": profile.name, "gradient_bytes": profile.total_bytes, "ranks": question.ranks,
        "repeats": question.repeats, "rows": [row.data for row in rows],
    }  # fmt: skip
    return Answer(data, _text(rows, profile.name, profile.total_bytes, question))


def _published_s(mode: str, ranks: int, size_bytes: int) -> float | None:
    """Encode and decode as `gapless list compressors` has them, on a V100."""
    try:
        compressor = named_compressor(mode)
    except InputError:
        return None
    return float(compressor.cost(ranks)(size_bytes)) or None


def _text(rows: Sequence[_Row], name: str, size_bytes: int, question: CompressorsQuestion) -> str:
    least = min(row.times.median_s for row in rows)
    lines = [
        ["compressor", "encode", "decode", "both", "least .. most", "to the fastest", "sent", "collective", "V100"]
    ]
    for row in rows:
        times = row.times
        medians = [format_seconds(statistics.median(each)) for each in (times.encode_s, times.decode_s)]
        between = f"{format_seconds(min(times.both_s))} .. {format_seconds(max(times.both_s))}"
        published = "-" if row.published_s is None else format_seconds(row.published_s)
        lines.append([
            times.mode, *medians, format_seconds(times.median_s), between, f"{times.median_s / least:.1f}",
            format_bytes(times.sent_bytes), row.collective, published,
        ])  # fmt: skip
    what = f"{name}, {format_bytes(size_bytes)} in {question.ranks} ranks"
    return f"{table(lines)}\n{what}: medians of {question.repeats} in one process; V100: as published"
