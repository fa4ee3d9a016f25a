"""Decode with a model: the translator, the search for the best output, and the engines that compute probabilities.

load.py                             load a translator from a folder
translator.py                       text in, text out: tokenizers around a search
options.py                          options of a search, and their checks
pool.py, worker.py                  share batches among processes; what each process does with a batch
search.py                           greedy and beam search over a step function, independent of the model
best.py                             the best tokens by log-probability
sampling.py                         draw tokens at random instead of searching
engine.py                           the interface of an engine, as the search sees it
torch_engine.py                     the engine `torch`: the model itself, on any device
onnx_engine.py                      the engine `onnx`: the model's graphs (`repose.graphs`), through ONNX Runtime
ensemble.py                         several models as one: the mean of their probabilities
one_sentence_graph.py               hypotheses from a graph that contains the whole search
graph_cache.py                      graphs that are made on first use and cached
lengths.py                          how long a source may be
parts.py                            split a text of any length into sentences, and join their translations
stream.py                           files of lines

The search and the engine `onnx` run without torch.

How a sentence is translated, with a beam and the engine `torch`. The letters are those of `repose.model`: R rows are
the live hypotheses of N sentences that are searched together.

    translator.Translator.translate             texts -> ids from START to END -> batches of similar length
    -> pool.Pool.search, worker.Batch.search    which process searches which batch
    -> torch_engine.TorchEngine.start           ids (N, S) -> the memory (R, D); the cache, with one row per sentence
    -> search.beam_search                       until no row is left:
       -> torch_engine.TorchEngine.step         last tokens (R,) -> log-probabilities of the next (R, V), by ...
          -> model.transformer.Transformer.step
          -> model.stacks.Decoder.step          ids (R,) -> embedded rows (R, D) -> layers -> (R, D)
          -> model.cached_attention             the rows' queries, the cached keys (R, G, K, c) -> (R, D)
       -> best.best_tokens                      (R, V) -> the best `beam_size` + 1 of each row
       -> search._Beams.advance                 what is finished, and the rows to keep with their new tokens
       -> model.kernels.cache.Cache.select      the kept rows' keys and values, in the new order
    <- search.TokenHypothesis                   ids and scores, best first
    <- translator.Translator._translation       ids -> text
"""
