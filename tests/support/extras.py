"""Which extras are installed, for tests of what only works with them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

HAS_MATPLOTLIB = find_spec("matplotlib") is not None

needs_matplotlib = pytest.mark.skipif(not HAS_MATPLOTLIB, reason="needs the extra `plot`")

HAS_TRANSFORMERS = find_spec("torch") is not None and find_spec("transformers") is not None

needs_transformers = pytest.mark.skipif(not HAS_TRANSFORMERS, reason="needs the extra `hf`")
