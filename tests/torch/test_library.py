"""Without PyTorch."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from gapless.errors import InputError


@pytest.mark.parametrize(
    "module", ["ddp.buckets", "compression", "embeddings.lookup", "embeddings.sharding", "capture.graph"]
)
def test_missing_torch_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for name in [name for name in sys.modules if name.startswith("gapless.torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install '\.\[torch\]'"):
        importlib.import_module(f"gapless.torch.{module}")


def test_reading_and_writing_buckets_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import gapless.io.formats.ddp_buckets"
    subprocess.run([sys.executable, "-c", code], check=True)
