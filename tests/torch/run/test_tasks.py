"""Small models after VGG, a speech LSTM and BERT: batches of one distribution, which can be learnt. Needs torch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.torch.run.workload import load_named

SMALL = {
    "train:vgg,width=4,size=8,classes=3": 0.1,
    "train:lstm,hidden=16,sounds=4,frames=8": 1.0,
    "train:bert,hidden=16,layers=1,vocabulary=4": 0.3,
}


@pytest.mark.parametrize(("name", "rate"), SMALL.items())
def test_a_few_steps_on_other_batches_lower_the_loss_of_one_that_was_not_seen(name: str, rate: float) -> None:
    unseen, model = load_named(name, 1000), load_named(name, 0).model
    optimizer = torch.optim.SGD(model.parameters(), rate)
    before = float(unseen.loss_of(model.train()).detach())
    for seed in range(1, 31):
        batch = load_named(name, seed)
        optimizer.zero_grad()
        batch.loss_of(model).backward()
        optimizer.step()
    assert float(unseen.loss_of(model).detach()) < before - 0.05


def test_masked_words_alone_are_guessed() -> None:
    work = load_named("train:bert,vocabulary=5", 3)
    (words,), (targets,) = work.inputs, work.targets
    assert torch.equal(words == 5, targets >= 0)
    assert 0.1 < float((targets >= 0).float().mean()) < 0.25


@pytest.mark.parametrize(
    ("name", "rule"),
    [("train:vgg,size=12", "size must be a multiple of 8"), ("train:bert,heads=3", "multiple of 3 heads")],
)
def test_sizes_that_do_not_divide_are_refused(name: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load_named(name)
