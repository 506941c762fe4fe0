"""A small language model, trained here byte by byte on `small_lm.txt.gz`: 4 layers of 8 heads.

The text is the project's own: its pages as they were on 22 November 2026, kept so that figures can be made again.

`python tests/support/small_lm.py FOLDER` trains it in some minutes of processor time, and writes the folder that
`--model` takes, with the texts for calibration and validation beside it.
"""

from __future__ import annotations

import gzip
import math
import sys
from pathlib import Path

import torch
import transformers

TEXT = Path(__file__).with_name("small_lm.txt.gz")
SEQUENCE, BATCH = 128, 16
_HELD_OUT = 0.1
_ENOUGH, _MOST_STEPS = 0.97, 900


def corpus() -> tuple[str, str, str]:
    """What is trained on, and for calibration and validation what is not: pieces of the text, in turns."""
    text = gzip.decompress(TEXT.read_bytes()).decode()
    size = 4096
    pieces = [text[first : first + size] for first in range(0, len(text), size)]
    every = round(1 / _HELD_OUT)
    train = "".join(piece for number, piece in enumerate(pieces) if number % every > 1)
    return train, "".join(pieces[0::every]), "".join(pieces[1::every])


def train(folder: Path, steps: int = 900, seed: int = 0, key_heads: int = 8) -> None:
    """Train, and save the model as transformers does, with `calibration.txt` and `validation.txt`."""
    torch.set_num_threads(1)  # sums have one order then, on any machine
    texts = corpus()
    data = torch.tensor(list(texts[0].encode()), dtype=torch.int64)
    torch.manual_seed(seed)
    model = _model(key_heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warm_up = steps // 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / (warm_up + 1), 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps))),
    )
    for _ in range(steps):
        first = torch.randint(len(data) - SEQUENCE, (BATCH,))
        batch = torch.stack([data[start : start + SEQUENCE] for start in first.tolist()])
        loss = model(batch, labels=batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    _save(model, folder, texts)


def train_copying(folder: Path, seed: int = 0) -> None:
    """As `train`, a model that repeats what it has read: 8 to 32 bytes, drawn one by one, again and again.

    It ends once nearly all bytes are right where 32 drawn ones are said again, or after 900 steps, in some minutes.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    texts, length, batch = corpus(), SEQUENCE // 2, 2 * BATCH
    data = torch.tensor(list(texts[0].encode()), dtype=torch.int64)
    model, rate, warm_up = _model(), 2e-3, 50
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(_MOST_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / warm_up)
        rows = []
        for _ in range(batch):
            repeated = int(torch.randint(8, length // 2 + 1, ()))
            rows.append(data[torch.randint(len(data), (repeated,))][torch.arange(length) % repeated])
        read = torch.stack(rows)
        optimizer.zero_grad()
        model(read, labels=read, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 49 and _copied(model, data, batch, length // 2) > _ENOUGH:
            break
    _save(model, folder, texts)


def _copied(model: torch.nn.Module, data: torch.Tensor, count: int, length: int) -> float:
    """The share of bytes that are right where so many drawn bytes are said again."""
    read = data[torch.randint(len(data), (count, length))].repeat(1, 2)
    with torch.no_grad():
        said = model(read, use_cache=False).logits[:, length:-1].argmax(dim=-1)
    return float((said == read[:, length + 1 :]).double().mean())


def _model(key_heads: int = 8) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=key_heads, max_position_embeddings=2048, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def _save(model: torch.nn.Module, folder: Path, texts: tuple[str, str, str]) -> None:
    model.save_pretrained(folder)
    (folder / "calibration.txt").write_text(texts[1], encoding="utf-8")
    (folder / "validation.txt").write_text(texts[2], encoding="utf-8")


if __name__ == "__main__":
    train(Path(sys.argv[1]))
