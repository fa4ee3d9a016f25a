"""Training: plain PyTorch in a loop, the same numbers however the work is shared out among processes.

job.py                  what a training is given, what a task is to it, and how it ended
run.py                  a training as one call: begin or go on, start the workers, train
loop.py, advice.py      update after update, validations, the end; what it warns of
feed.py                 each batch as tensors, this worker's share of it
learner.py              the model's weights in one flat tensor: their gradient, clipping, Adam
loss.py, r_drop.py      cross-entropy with its gradient, of one pass and of two
schedule.py             learning rates, and the patience that ends a training early
validation.py           teacher-forced figures of the validation set
checkpoint.py           what is kept to go on from, and what the model directory is written from
journal.py, display.py  what a training tells: metrics.jsonl, train.log, the terminal
distributed.py          the workers: processes, one for each core or GPU
exchange.py             how they add their gradients up
replays.py              passes of one shape as CUDA graphs

One batch, start to end, in translation on a CPU. `benchmarks/peers/plain_torch.py` does the same on padded tensors in
plain PyTorch, in one file: read it first. The letters are those of `repose.model`, and P is the number of parameters.

    data.batching.Batches.epoch               indices of the batch's pairs (B,), drawn from the seed and the epoch
    -> feed.Feed.epoch                        GlobalBatch, of micro-batches: src (B, S), tgt (B, T), labels (N,)
    -> loop.Trainer._update                   the learning rate; then the learner's two halves, `backward` and `step`
    -> learner.Learner.backward               for each micro-batch the dropout's seed, then all down to `cross_entropy`
    -> tasks.translation TASK.training_loss   some tokens replaced by [UNK], where word dropout asks for it
    -> model.transformer.Transformer.hidden   src (B, S), tgt (B, T) -> (N, D), what predicts each label
    -> model.stacks.Encoder, Decoder          ids (B, L) -> embedded rows without padding (R, D) -> layers -> (R, D)
    -> model.attention.Attention.forward      rows (R, D) -> of each block of sentences scores (b h, q, k) -> (R, D)
    -> loss.cross_entropy                     hidden (N, D), output weight (V, D), labels (N,) -> the sum of losses ()
    <- learner.Learner.backward               autograd's backward of that sum, over the tokens of the global batch: the
                                              gradient (P,), added up over workers by `exchange`, and clipped
    -> learner.Learner.step                   Adam moves the weights (P,)
"""
