"""Models of `transformers` that train by plans in a plain loop, to eager's bits. Without it these tests are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")
pytest.importorskip("transformers", reason="transformers is not installed; pip install '.[hf]' in a checkout")

from planned_zoo import MODELS, differences


@pytest.mark.thorough(but=("Llama", "BERT"))
@pytest.mark.parametrize("name", MODELS)
def test_training_has_eagers_bits(name: str) -> None:
    assert differences(name, 2, lambda _: None) == []
