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
"""
