"""The notebooks of the documentation: executed in kernels of their own, and written so that changes are small."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"

Notebook = Any  # a NotebookNode, which has no types


def notebooks() -> list[Path]:
    """All notebooks, by name."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> Notebook:
    """A notebook as it stands in its file."""
    import nbformat

    return nbformat.read(path, as_version=4)


def executed(notebook: Notebook, folder: Path, python: Path | None = None) -> Notebook:
    """A copy with the outputs of a run in `folder`, in a kernel of its own, on this checkout and one thread.

    `python`: of another environment, which then runs it with what is installed there, without the checkout.
    """
    from copy import deepcopy

    from nbclient import NotebookClient

    copy = deepcopy(notebook)
    backend = "module://matplotlib_inline.backend_inline"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MPLBACKEND": backend}
    if python is not None:
        del environment["PYTHONPATH"]
    client = NotebookClient(copy, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable if python is None else str(python)
    client.execute(env=environment)
    return copy


def texts(cell: Any) -> list[str]:
    """What a cell prints, and the plain form of what it shows: no pictures nor their titles, no measured times."""
    found = []
    for output in cell.get("outputs", ()):
        shown = output.get("data", {})
        plain = output.text if output.output_type == "stream" else shown.get("text/plain", output.output_type)
        if "image/png" not in shown and not plain.startswith("<Axes"):
            found.append(plain)
    return found


def normalised(notebook: Notebook, earlier: Notebook | None = None) -> Notebook:
    """The notebook without what differs from run to run: no counts, ids by place, metadata of the language alone.

    A cell whose source and texts are those of `earlier` keeps its outputs: bytes of pictures don't change for nothing.
    """
    known = {cell.source: cell for cell in ([] if earlier is None else earlier.cells)}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat_minor = 5
    for place, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{place}", {}
        if cell.cell_type != "code":
            continue
        same = known.get(cell.source)
        if same is not None and same.outputs and texts(same) == texts(cell):
            cell.outputs = same.outputs
        cell.execution_count = None
        for output in cell.outputs:
            output.pop("execution_count", None)
            if output.output_type == "execute_result":
                output["execution_count"] = None
            if "metadata" in output:
                output["metadata"] = {}
    return notebook


def written(notebook: Notebook) -> str:
    """The text of a notebook's file."""
    import nbformat

    return f"{nbformat.writes(notebook).rstrip()}\n"
