"""Write a model as ONNX graphs, which run without torch; `repose.decoding.onnx_engine` runs them.

coverage.py                         which settings of an architecture an export target does not support
folder.py, writing.py               a folder of graphs, and the facts needed to run them; write the graphs
stacks.py                           the encoder, and one decoding step
attention.py                        attention
searches.py                         the whole search for one sentence: the step in a loop
graph.py                            building a graph: values and operators
"""
