"""The Trainer of transformers: accumulation, bf16, clipping, evaluation, checkpoints, batches of several lengths."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def example(number: int) -> dict[str, torch.Tensor]:
    words = torch.randint(3, 97, (12 + 4 * (number % 2),), generator=torch.Generator().manual_seed(number))
    return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words}


def padded(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {
        name: torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True, padding_value=value)
        for name, value in fill.items()
    }


torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, vocab_size=97, bos_token_id=1, eos_token_id=2)
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=50, per_device_train_batch_size=4, gradient_accumulation_steps=2, bf16=True, logging_steps=1,
        eval_strategy="steps", eval_steps=25, save_steps=25, use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model,
        arguments,
        train_dataset=[example(number) for number in range(50)],
        eval_dataset=[example(number) for number in range(50, 60)],
        data_collator=padded,
    )
    trainer.train()
for line in trainer.state.log_history:
    print(*(f"{name} {line[name]!r}" for name in ("step", "loss", "grad_norm", "eval_loss") if name in line))
