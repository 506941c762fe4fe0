"""The texts of a picture where they are drawn: which of them overlap, and which are cut off."""

from __future__ import annotations

from itertools import combinations
from typing import Any

SLACK_PX = 1.0
"""Boxes of letters have a margin."""


def drawn_texts(figure: Any) -> list[tuple[str, Any]]:
    """Each text that is drawn, and its bounding box in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # lays out
    found: list[tuple[str, Any]] = []
    draw = Text.draw

    def noted(self: Any, renderer: Any, *values: Any, **named: Any) -> Any:
        if self.get_visible() and self.get_text().strip():
            found.append((self.get_text(), self.get_window_extent(renderer)))
        return draw(self, renderer, *values, **named)

    Text.draw = noted  # type: ignore[method-assign]
    try:
        canvas.draw()
    finally:
        Text.draw = draw  # type: ignore[method-assign]
    return found


def text_troubles(figure: Any) -> list[str]:
    """What is wrong with the texts of a picture, a line each."""
    texts, most = drawn_texts(figure), figure.bbox
    found = [
        f"{text!r} is cut off"
        for text, box in texts
        if min(box.x0, box.y0, most.width - box.x1, most.height - box.y1) < -SLACK_PX
    ]
    for (one, a), (other, b) in combinations(texts, 2):
        across, down = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if min(across, down) > SLACK_PX:
            found.append(f"{one!r} and {other!r} overlap")
    return found
