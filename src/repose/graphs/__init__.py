"""A model as ONNX graphs, which run without torch: written here, computed by `repose.decoding.onnx_engine`.

coverage.py                         which settings of an architecture a target does not know
folder.py                           a folder of graphs, and the facts that whoever runs them must know
stacks.py                           the encoder, and one more token of each row
attention.py                        attention in them
searches.py                         whole searches of one sentence: the step in a loop
graph.py                            a graph under construction: values and operators
"""
