"""The best dependency tree of a sentence: a maximum spanning arborescence in which ROOT has exactly one child."""

import numpy as np
from numpy.typing import NDArray

from repose.data.treebank import is_tree
from repose.system.errors import ConfigError


def best_tree(scores: NDArray[np.floating]) -> list[int]:
    """The heads of words 1 .. n, 0 being ROOT, that have the greatest sum of `scores[word, head]`, (n + 1, n + 1).

    Row 0 and the diagonal mean nothing. Where the words' best heads together are a tree, nothing can be better. Else
    Edmonds' algorithm (McDonald et al. 2005; networkx) seeks the best arborescence. To have one root, every arc from
    ROOT costs more than any two trees can differ by, so that no tree has more of them than it must (Stanojevic and
    Cohen 2021). Raises ConfigError without the library `networkx`.
    """
    n = len(scores) - 1
    exact = np.array(scores, dtype=np.float64)
    np.fill_diagonal(exact, -np.inf)
    greedy: list[int] = exact[1:].argmax(1).tolist()
    if is_tree(greedy):
        return greedy
    try:
        import networkx
    except ImportError as error:
        raise ConfigError("finding trees needs the library networkx: pip install 'repose-nmt[parsing]'") from error
    finite = exact[np.isfinite(exact)]
    cost = (finite.max() - finite.min() + 1.0) * (n + 1)
    graph = networkx.DiGraph()
    for word in range(1, n + 1):
        for head in range(n + 1):
            if head != word:
                graph.add_edge(head, word, weight=exact[word, head] - cost * (head == 0))
    tree = networkx.maximum_spanning_arborescence(graph)
    heads = {word: head for head, word in tree.edges}
    return [heads[word] for word in range(1, n + 1)]
