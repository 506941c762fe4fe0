"""Models of `transformers` whose sequences are padded to share a plan. Without it these tests are skipped."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")
pytest.importorskip("transformers", reason="transformers is not installed; pip install '.[hf]' in a checkout")

import torch
from planned_zoo import MODELS

from gapless.torch import planned

RATES = ("attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "dropout_rate", "dropout")


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            for name in RATES:
                if isinstance(getattr(holder, name, None), float):
                    setattr(holder, name, 0.0)
    return model


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["Llama", "GPT-2", "BERT", "Qwen3", "Gemma 2", "T5", "Mixtral"])
def test_gradients_are_those_of_unpadded_calls(name: str) -> None:
    torch.manual_seed(0)
    eager = without_dropout(MODELS[name]().model.train())
    model = planned(copy.deepcopy(eager), "1.0x", pad_to=32, report=lambda _: None)
    for length in (16, 21, 30):
        words = torch.randint(3, 100, (2, length))
        given = {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words}
        found = []
        for its in (eager, model):
            its.zero_grad()
            outputs = its(**given, **({} if name in ("BERT", "T5") else {"use_cache": False}))
            outputs.loss.backward()
            found.append((outputs, [each.grad for each in its.parameters() if each.grad is not None]))
        (wanted, gradients), (padded, own) = found
        assert padded.logits.shape == wanted.logits.shape
        assert padded.loss.item() == pytest.approx(wanted.loss.item(), rel=1e-6)
        largest = max(float(each.norm()) for each in gradients)
        for one, other in zip(gradients, own, strict=True):
            assert float((one - other).norm()) <= 2e-6 * max(float(one.norm()), 1e-3 * largest)
    assert len(model.forward.plans) == 1
