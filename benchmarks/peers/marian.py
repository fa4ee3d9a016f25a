"""Hugging Face's MarianMTModel, trained by `transformers.Trainer` and decoding by `generate`, as users run them.

The sizes are the nearest that its configuration can express: head width d_model / heads, positions added, values from
hidden states. `Trainer` runs its own loop, once, over a dataset whose items are the batches. A callback stops it
between steps while other contestants are measured. Gradient clipping is switched off, because no other contestant
clips.
"""

import queue
import tempfile
import threading
from typing import Any

import accelerate
import torch
import transformers
from protocol import (
    ADAM_BETAS,
    ADAM_EPS,
    END,
    LEARNING_RATE,
    NEW_TOKENS,
    PAD,
    START,
    Options,
    Workload,
    pad,
    parse,
    serve,
)
from transformers import MarianConfig, MarianMTModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

IGNORED = -100
"""The label that `MarianMTModel` leaves out of its loss."""


def build(options: Options, workload: Workload) -> MarianMTModel:
    """Build the model with random weights.

    It has three separate embedding and output matrices, as in the paper's models (arXiv 2410.04731).
    """
    sizes = options.sizes
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=workload.src_vocab_size,
        decoder_vocab_size=workload.tgt_vocab_size,
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
        scale_embedding=True,
        max_position_embeddings=1024,
        d_model=sizes.d_model,
        encoder_layers=sizes.num_encoder_layers,
        decoder_layers=sizes.num_decoder_layers,
        encoder_attention_heads=sizes.num_heads,
        decoder_attention_heads=sizes.num_heads,
        encoder_ffn_dim=sizes.d_ff,
        decoder_ffn_dim=sizes.d_ff,
        activation_function="relu",
        dropout=sizes.dropout,
        attention_dropout=sizes.attention_dropout,
        pad_token_id=PAD,
        bos_token_id=START,
        decoder_start_token_id=START,
        eos_token_id=END,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


class Batches(torch.utils.data.Dataset):
    """The training batches from `first` on, each assembled on demand."""

    def __init__(self, workload: Workload) -> None:
        self.first = 0
        self.tokens: dict[int, int] = {}
        """Target tokens of each batch that was ever requested, by its number."""
        self._workload = workload

    def __len__(self) -> int:
        return self._workload.num_batches

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        number = (self.first + index) % len(self)
        batch = self._workload.train_batch(number)
        self.tokens[number] = batch.tokens
        src, tgt, labels = (torch.from_numpy(array) for array in batch[:3])
        masks = {"attention_mask": (src != PAD).long(), "decoder_attention_mask": (tgt != PAD).long()}
        return {"input_ids": src, "decoder_input_ids": tgt, **masks, "labels": labels.masked_fill(tgt == PAD, IGNORED)}


class Gate(TrainerCallback):
    """Lets the Trainer take as many steps as requested, then makes it wait for the next request."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._left = 0

    def run(self, steps: int) -> None:
        """Make the Trainer take these steps. Called from another thread."""
        self._asked.put(steps)
        self._done.get()

    def end(self) -> None:
        """Let the training end. Called from another thread."""
        self._asked.put(0)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 (Trainer's names)
        self._left = self._asked.get()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self._left -= 1
        if self._left == 0:
            if args.device.type == "cuda":
                torch.cuda.synchronize()
            self._done.put(None)
            self._left = self._asked.get()
            control.should_training_stop = self._left == 0


def train(options: Options, workload: Workload, model: MarianMTModel, facts: dict[str, Any]) -> None:
    """Run Trainer's loop in this thread, the protocol in another: torch's settings belong to the main thread."""
    batches, gate = Batches(workload), Gate()

    def run(numbers: list[int]) -> int:
        if not batches.tokens:  # the Trainer waits in `on_train_begin`; after that, it runs by itself
            batches.first = numbers[0]
        gate.run(len(numbers))
        return sum(batches.tokens[number] for number in numbers)

    def speak() -> None:
        try:
            serve(options, workload.num_batches, run, **facts)
        finally:
            gate.end()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=options.device == "cpu",
            bf16=options.precision == "bf16",
            per_device_train_batch_size=1,  # an item is a whole batch
            train_sampling_strategy="sequential",
            remove_unused_columns=False,
            num_train_epochs=1_000_000,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            adam_beta1=ADAM_BETAS[0],
            adam_beta2=ADAM_BETAS[1],
            adam_epsilon=ADAM_EPS,
            weight_decay=0.0,
            max_grad_norm=0.0,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, data_collator=_only, train_dataset=batches, callbacks=[gate])
        trainer.remove_callback(PrinterCallback)  # it would write to stdout
        threading.Thread(target=speak, daemon=True).start()
        trainer.train()


def _only(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    (batch,) = items
    return batch


def decode(options: Options, workload: Workload, model: MarianMTModel, facts: dict[str, Any]) -> None:
    """Decode with `generate` and its key/value cache, batch by batch in the given order."""
    model.to(options.device).eval()
    if options.precision == "bf16":
        model.bfloat16()

    @torch.inference_mode()
    def run(numbers: list[int]) -> int:
        sentences = 0
        for number in numbers:
            src = torch.from_numpy(pad(workload.decode_batches[number])).to(options.device)
            outputs = model.generate(
                input_ids=src,
                attention_mask=(src != PAD).long(),
                min_new_tokens=NEW_TOKENS,
                max_new_tokens=NEW_TOKENS,
                num_beams=options.beam,
                do_sample=False,
                use_cache=True,
            )
            assert outputs.cpu().shape == (len(src), 1 + NEW_TOKENS), "START and the new tokens"
            sentences += len(outputs)
        return sentences

    serve(options, workload.num_batches, run, **facts)


def main() -> None:
    """Command-line entry point: build the model and do the task until stdin ends."""
    options = parse("Hugging Face MarianMTModel as a contestant.", sizes=("nearest",), devices=("cpu", "cuda"))
    torch.set_num_threads(options.threads)
    workload = Workload(options)
    model = build(options, workload)
    facts = {
        "name": "Hugging Face Marian",
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "versions": {module.__name__: module.__version__ for module in (torch, transformers, accelerate)},
    }
    (train if options.task == "train" else decode)(options, workload, model, facts)


if __name__ == "__main__":
    main()
