"""From sentences to translations: a translator, the search for the best output, and what computes its probabilities.

load.py                             a translator from a folder
translator.py                       text in, text out: tokenizers around a search
options.py                          what can be said about a search, and its checks
pool.py, worker.py                  batches shared out among processes; what each does with one
search.py                           greedy and beam search over a step, which know no model
best.py                             the best tokens of a step's log-probabilities
sampling.py                         tokens drawn instead of searched
engine.py                           what computes a step, as the search sees it
torch_engine.py                     the model itself, on any device
onnx_engine.py                      graphs of it (`repose.graphs`), through ONNX Runtime
ensemble.py                         several models as one: the mean of their probabilities
one_sentence_graph.py               hypotheses from a graph that holds the whole search
graph_cache.py                      graphs made on first use, and kept
lengths.py                          how long a source may be
parts.py                            text of any length: split into sentences, and put together again
stream.py                           files of lines

The search, and the engine onnx, run without torch.
"""
