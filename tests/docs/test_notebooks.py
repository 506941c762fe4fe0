"""The notebooks of the documentation run, and say what stands in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebook_files import executed, normalised, notebooks, read, texts, written
from published import PUBLISHED

pytestmark = pytest.mark.extra("docs")

_MOST_BYTES = 300_000


def name(path: Path) -> str:
    return path.stem


@pytest.mark.thorough(but=("chai",))
@pytest.mark.filterwarnings("ignore")  # those of Jupyter's own libraries
@pytest.mark.parametrize("path", notebooks(), ids=name)
def test_a_notebook_says_what_stands_in_it(path: Path, tmp_path: Path) -> None:
    notebook = read(path)
    after = executed(notebook, tmp_path)
    assert [texts(cell) for cell in after.cells] == [texts(cell) for cell in notebook.cells]


@pytest.mark.parametrize("path", notebooks(), ids=name)
def test_a_notebook_is_short_small_and_normalised(path: Path) -> None:
    notebook, text = read(path), path.read_text(encoding="utf-8")
    assert written(normalised(read(path))) == text, "run .ci/notebooks"
    assert 6 <= len(notebook.cells) <= 12
    assert len(text.encode()) <= _MOST_BYTES
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or not any(each.output_type == "error" for each in cell.outputs)


def test_every_published_system_has_a_notebook_that_shows_a_result_and_a_picture() -> None:
    assert [path.stem for path in notebooks()] == list(PUBLISHED)
    for path in notebooks():
        outputs = [output for cell in read(path).cells for output in cell.get("outputs", ())]
        html = "".join(str(output.get("data", {}).get("text/html", "")) for output in outputs)
        assert "<b>" in html
        assert "<img" in html
        assert any("image/png" in output.get("data", {}) for output in outputs)
        assert "<script" not in html
