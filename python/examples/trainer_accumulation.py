# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers with accumulation: a loss is divided by the labels of all ranks and micro-batches, unless it is told
to count those of its own rank."""
import os
import sys
import tempfile

import torch
import transformers

import weft.torch

transformers.logging.set_verbosity_error()


def model():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


class OneStep(transformers.Trainer):
    """With this rank's samples, in two micro-batches, and with gradients that stay."""

    def get_train_dataloader(self):
        first = (2 * len(self.train_dataset[0]) + 2) // 3
        return [dict(zip(("input_ids", "labels"), part)) for part in zip(*(x.split(first) for x in self.train_dataset))]


class Keep(transformers.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model, **_):
        self.gradients = [p.grad.clone() for p in model.parameters()]


def trained(model, batch, average_tokens_across_devices):
    keep = Keep()
    with tempfile.TemporaryDirectory() as folder:
        OneStep(model, transformers.TrainingArguments(
            folder, use_cpu=True, max_steps=1, gradient_accumulation_steps=2, learning_rate=0, max_grad_norm=0, report_to="none",
            save_strategy="no", disable_tqdm=True, average_tokens_across_devices=average_tokens_across_devices),
            train_dataset=batch, callbacks=[keep]).train()
    for p, gradient in zip(model.parameters(), keep.gradients):
        p.grad = gradient


def step(model, batch):
    trained(model, batch, average_tokens_across_devices=True)


def wrong(model, batch):
    trained(model, batch, average_tokens_across_devices=False)


words = torch.randint(0, 16, (24, 8))
batch = words, words.masked_fill(torch.rand(24, 8) < 0.3, -100)



def counts(batch):
    return {"labels": int((batch[1] != -100).sum())}


if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, counts=counts))
