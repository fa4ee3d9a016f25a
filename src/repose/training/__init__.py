"""Training: plain PyTorch in a loop, with the same results however batches are shared among processes.

job.py                  the inputs of a training, the interface of a task, and the outcome
run.py                  training as one call: begin or resume, start the workers, train
loop.py, advice.py      the loop: updates, validations, the end; its warnings
clock.py                the time that a training has taken and may still take
feed.py                 each batch as tensors, and this worker's share of it
learner.py              the model's weights in one flat tensor: their gradient, clipping, Adam
loss.py, r_drop.py      cross-entropy with its gradient, for one pass and for two (R-Drop)
schedule.py             learning rates, and early stopping
validation.py           teacher-forced figures on the validation set
state.py                how far a training is; its running sums
checkpoint.py           saving and resuming; averaging and writing the model
journal.py, display.py  reporting: metrics.jsonl, train.log, the terminal
distributed.py          workers: processes, one per core or GPU
exchange.py             adding up the workers' gradients
replays.py              passes recorded as CUDA graphs, one per shape

How one batch is processed, for translation on a CPU. `benchmarks/peers/plain_torch.py` does the same on padded tensors
in plain PyTorch, in one file: read it first. The letters are those of `repose.model`, and P is the number of
parameters.

    data.batching.Batches.epoch               indices of the batch's pairs (B,), from the seed and the epoch
    -> feed.Feed.epoch                        GlobalBatch, of micro-batches: src (B, S), tgt (B, T), labels (N,)
    -> loop.Trainer._update                   the learning rate; then the learner's `backward` and `step`
    -> learner.Learner.backward               per micro-batch: sets the dropout's seed, then all down to `cross_entropy`
    -> tasks.translation TASK.training_loss   replaces some tokens by [UNK] (word dropout)
    -> model.transformer.Transformer.hidden   src (B, S), tgt (B, T) -> (N, D), the state that predicts each label
    -> model.stacks.Encoder, Decoder          ids (B, L) -> embedded rows without padding (R, D) -> layers -> (R, D)
    -> model.attention.Attention.forward      rows (R, D) -> scores of each block of sentences (b h, q, k) -> (R, D)
    -> loss.cross_entropy                     hidden (N, D), output weight (V, D), labels (N,) -> the sum of losses ()
    <- learner.Learner.backward               autograd's backward of that sum, over the tokens of the global batch: the
                                              gradient (P,), summed over workers by `exchange`, and clipped
    -> learner.Learner.step                   Adam updates the weights (P,)
"""
