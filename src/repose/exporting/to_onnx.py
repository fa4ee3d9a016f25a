"""Target `onnx`: graphs of the encoder and of one decoding step, with tokenizers and settings.

`repose.load` reads the folder without torch. The graphs are loaded again and compared with the model on random
sentences: log-probabilities of given targets.
"""

from pathlib import Path

from repose.decoding.graph_cache import compare
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.translator import MODEL_KIND
from repose.exporting.base import Exported, Options, usage
from repose.graphs import folder as graphs
from repose.graphs.stacks import why_not
from repose.graphs.writing import write_graphs
from repose.saved_model import directory
from repose.saved_model.description import add_to_description
from repose.saved_model.directory import SRC_TOKENIZER, TGT_TOKENIZER
from repose.saved_run.folder import about_model
from repose.system.errors import ConfigError

_OWN = ("sha256", "own_crc32")
"""Fields of config.json about the model directory's files, which an export leaves out."""
_HOW = (
    "import repose  # pip install 'repose-nmt[runtime]'",
    "",
    "translator = repose.load(FOLDER)  # or, in a shell: repose translate FOLDER",
    "translator.translate([text])[0].text",
)


def export(model: Path, out: Path, options: Options) -> Exported:
    """See `repose.exporting.targets`."""
    architecture = directory.architecture_of(model)
    if (reason := why_not(architecture)) is not None:
        raise ConfigError(f"this model cannot be exported to ONNX: {reason}")
    loaded, tokenizers, config = directory.load(model, MODEL_KIND)
    facts = write_graphs(out, loaded, int8=options.precision == "int8")
    directory.source_tokenizer(tokenizers[0], config).save(out / SRC_TOKENIZER)
    tokenizers[1].save(out / TGT_TOKENIZER)
    kept = {name: value for name, value in config.items() if name not in _OWN}
    fields = {"about": about_model(model), **usage(config.get("decoding", {}), *_HOW), "config": kept}
    graphs.describe(out, config, facts, fields)
    largest = compare(OnnxEngine(graphs.read(out)), loaded)
    add_to_description(out, graphs.TARGET, largest_difference=largest)
    return Exported(graphs.TARGET, out, largest)
