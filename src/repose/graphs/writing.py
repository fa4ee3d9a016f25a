"""Write the graphs of a model into a folder."""

from pathlib import Path

from repose.graphs import searches
from repose.graphs.folder import BEAM, ENCODER, GREEDY, STEP, GraphFacts
from repose.graphs.graph import refer
from repose.graphs.stacks import graphs_of
from repose.model.transformer import Transformer


def write_graphs(folder: Path, model: Transformer, *, int8: bool = False) -> GraphFacts:
    """Write the graphs into a folder. Raises ConfigError if the extra `fast` is missing."""
    graphs = graphs_of(model, int8=int8)
    step = graphs.step.SerializeToString()
    (folder / ENCODER).write_bytes(graphs.encoder.SerializeToString())
    (folder / STEP).write_bytes(step)
    for name, write in ((GREEDY, searches.greedy), (BEAM, searches.beam)):
        searching = write(model, graphs.memory, int8=int8)
        refer(searching, STEP, step)
        (folder / name).write_bytes(searching.SerializeToString())
    return graphs.facts
