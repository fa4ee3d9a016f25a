"""Train one of repose's models in your own training loop, then use it like any other model.

    python examples/own_training.py MODEL [--updates N]

The example trains for a few minutes on the phrasebook that ships with repose (Portuguese to English) and writes the
model directory MODEL, which `repose translate`, `evaluate`, `export` and `serve` read. `repose.train` does more: it
resumes, limits memory, averages weights, stops when nothing improves, and keeps records.
"""

import argparse
import random

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import repose
from repose.data import phrasebook


def padded(sentences: list[list[int]]) -> Tensor:
    """Return token ids (B, longest), padded with 0."""
    return pad_sequence([torch.tensor(ids) for ids in sentences], batch_first=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder to write")
    parser.add_argument("--updates", type=int, default=500)
    arguments = parser.parse_args()

    sets = phrasebook.read()
    sides = zip(*sets["train"], strict=True)  # all sources, then all targets
    src, tgt = (repose.Tokenizer.train(list(side), kind="bpe", vocab_size=1_000) for side in sides)
    pairs = [(src.encode(a), tgt.encode(b)) for a, b in sets["train"]]  # each [START … END]

    # Any preset, or your own Architecture: dataclasses.replace(repose.presets()["pre-ln"], d_ff=256).
    model = repose.build("ablation-none", src_vocab_size=src.vocab_size, tgt_vocab_size=tgt.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    draw = random.Random(0)
    for update in range(1, arguments.updates + 1):
        sources, targets = zip(*draw.sample(pairs, 64), strict=True)
        read, said = padded(list(sources)), padded(list(targets))
        logits = model(read, said[:, :-1])  # (B, T, V): of the next token at each position
        loss = cross_entropy(logits.transpose(1, 2), said[:, 1:], ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 100 == 0:
            print(f"update {update}: loss {loss.item():.3f}")

    translator = repose.Translator(model, src, tgt)
    translator.save(arguments.model, src_lang="pt", tgt_lang="en")
    some = sets["test"][:3]
    for (source, reference), best in zip(some, translator.translate([a for a, _ in some]), strict=True):
        print(f"{source}\n  {best.text}\n  (reference: {reference})")


if __name__ == "__main__":
    main()
