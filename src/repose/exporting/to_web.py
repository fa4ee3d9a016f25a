"""Target `web`: a page that translates in the browser, as a folder for any file server or one file to open from disk.

    index.html, page.css, page.js     the page
    translator.js, search.js, parts.js
                                      tokenizers, graphs, search and long texts: `repose.decoding` in JavaScript
    ort.js, ort.wasm, tokenizers.js   onnxruntime-web and @huggingface/tokenizers
    model.json, encoder.onnx, step.onnx, tokenizer.src.json, tokenizer.tgt.json

The page loads everything at the start and nothing later, so texts never leave it. The graphs are those of the target
`onnx`.
"""

import base64
import dataclasses
import gzip
import html
import json
import re
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from repose.data.language import names_of_pair
from repose.data.tags import direction
from repose.decoding.graph_cache import compare
from repose.decoding.lengths import Lengths
from repose.decoding.load import load
from repose.decoding.onnx_engine import OnnxEngine
from repose.decoding.options import SETTINGS
from repose.decoding.translator import Translator
from repose.exporting import npm
from repose.exporting.base import Exported, Options, usage
from repose.graphs import folder as graphs
from repose.graphs.stacks import why_not
from repose.graphs.writing import write_graphs
from repose.model.transformer import Transformer
from repose.saved_model import directory
from repose.saved_model.description import write_description
from repose.saved_model.directory import SRC_TOKENIZER, TGT_TOKENIZER
from repose.saved_run.folder import model_warnings
from repose.system.errors import ConfigError

NAME, PAGE, LICENCES = "web", "index.html", "LICENSES.txt"
_OURS = ("page.js", "translator.js", "search.js", "parts.js")
_STYLE = "page.css"
_UNSAID_SYNTHETIC_TAG = "BT"
"""The tag of machine-written sources (back-translations), for models whose config.json does not name it: a model that
was trained further, without such sources, still has the tag."""
_NOT_LOADED = (
    "document.getElementById('status').textContent = 'page.js cannot be loaded. Browsers load nothing from a folder on "
    "this computer: open it through a web server, or export with --single-file.'"
)
LONGEST = 512
"""Longest sentence in tokens: tables of more positions would take much of a page's size and are hardly ever used."""


def export(model: Path, out: Path, options: Options) -> Exported:
    """See `repose.exporting.targets`."""
    architecture = directory.architecture_of(model)
    if (reason := why_not(architecture)) is not None:
        raise ConfigError(f"this model cannot translate in a page: {reason}")
    runtime = _runtime()  # first, because it may be missing
    translator = load(model, workers=1, engine="torch")
    shorter = _shortened(translator.model, LONGEST)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        facts = write_graphs(folder, shorter, int8=options.precision == "int8")
        graphs.describe(folder, translator.config, facts, {})
        largest = compare(OnnxEngine(graphs.read(folder)), shorter)
        files = {name: (folder / name).read_bytes() for name in (graphs.ENCODER, graphs.STEP)}
    files[SRC_TOKENIZER] = translator.src_tokenizer.json.encode()
    files[TGT_TOKENIZER] = translator.tgt_tokenizer.json.encode()
    settings = _settings(translator, facts)
    files["model.json"] = (json.dumps(settings, ensure_ascii=False) + "\n").encode()
    page = {name: _shipped(name) for name in (*_OURS, _STYLE)}
    if options.single_file:
        contents = {PAGE: _single_file(settings, {**files, **page, **runtime})}
        how = f"open {PAGE} in a browser"
        note = f"{PAGE} opens in a browser by a double click, and can be emailed"
    else:
        head = f'<link rel="stylesheet" href="{_STYLE}">'
        script = f'<script type="module" src="page.js" onerror="{_NOT_LOADED}"></script>'
        contents = {PAGE: _page(settings, head, script), **files, **page, **runtime}
        how = f"put the folder on any web server and open {PAGE} there; to look at it: python -m http.server"
        note = (
            "open it through a web server, such as `python3 -m http.server` in that folder; --single-file writes one "
            "file that opens by a double click"
        )
    for name, data in {**contents, LICENCES: _licences()}.items():
        (out / name).write_bytes(data)
    parts = {what: sum(map(len, x.values())) for what, x in {"model": files, "runtime": runtime, "page": page}.items()}
    fields = {
        "precision": options.precision,
        "single_file": options.single_file,
        "max_length": facts.max_length,
        **usage(settings["decoding"], how),
        "bytes": parts,
        "largest_difference": largest,
    }
    write_description(out, NAME, translator.config, fields)
    return Exported(NAME, out, largest, parts=parts, notes=(note,))


def _shortened(model: Transformer, longest: int) -> Transformer:
    """Return the model without positions beyond `longest`, which take most of a small model's size.

    Raises ConfigError if the model would then compute something else, for example because its position table does not
    begin with the first position.
    """
    architecture = model.architecture
    if architecture.max_length <= longest:
        return model
    cut = dataclasses.replace(architecture, max_length=longest)
    shorter = Transformer(cut, src_vocab_size=model.src_vocab_size, tgt_vocab_size=model.tgt_vocab_size).eval()
    sizes = {name: x.shape for name, x in shorter.state_dict().items()}
    shorter.load_state_dict({name: x[tuple(map(slice, sizes[name]))] for name, x in model.state_dict().items()})
    src, tgt = (1 + torch.arange(longest)[None] % (n - 1) for n in (model.src_vocab_size, model.tgt_vocab_size))
    with torch.no_grad():
        is_same = torch.allclose(shorter(src, tgt), model(src, tgt), atol=1e-4)
    if not is_same:
        raise ConfigError(
            f"a page has no positions beyond {longest}, but with positions = {architecture.positions!r} this model "
            f"computes something else without them: train one with architecture.max_length = {longest}"
        )
    return shorter


def _settings(translator: Translator, facts: graphs.GraphFacts) -> dict[str, Any]:
    """Return model.json: the facts that the page needs."""
    config = translator.config
    lengths = Lengths.of(translator.src_tokenizer, config, min(translator.max_length, facts.max_length), tagged=False)
    tags = [tag for tag in translator.src_tokenizer.tags if tag != config.get("synthetic_tag", _UNSAID_SYNTHETIC_TAG)]
    scripts = config.get("src_scripts")
    return {
        "run_id": config.get("run_id"),
        "tag": translator.tag,
        "tags": tags,
        "max_src_tokens": lengths.longest,
        "split_src_tokens": lengths.usual,
        "src_scripts": scripts if isinstance(scripts, list) else [],
        "warnings": model_warnings(config),
        "directions": {tag: _languages(config, tag) for tag in tags},
        **_languages(config, None),
        "graphs": facts.to_json(),
        "decoding": {name: getattr(translator, name) for name in SETTINGS},
    }


def _languages(config: Mapping[str, Any], tag: str | None) -> dict[str, str]:
    """Return source and target codes for the page, and the titles of its panes and of itself. `tag`: the tag that the
    model is given; None: its own, if any."""
    src_lang, tgt_lang = (code.replace("_", "-") for code in direction(config, tag))
    src, tgt = names_of_pair((src_lang, tgt_lang))
    title = "Translate" if src is None or tgt is None else f"{src} → {tgt}"
    names = {"title": title, "source": src or "source", "target": tgt or "translation"}
    return {"src_lang": src_lang, "tgt_lang": tgt_lang, **names}


def _page(settings: Mapping[str, Any], style: str, script: str) -> bytes:
    about = f"Model of run {settings['run_id'] or 'without a name'}, made with repose. It runs only in this page."
    texts = {name: settings[name] for name in ("title", "source", "target")}
    texts["about"] = " ".join([about, *settings["warnings"]])
    parts = {**{name: html.escape(text) for name, text in texts.items()}, "style": style, "script": script}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _shipped(PAGE).decode()).encode()


def _single_file(settings: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return the page with all files embedded: compressed with gzip, which browsers can unpack, and encoded as text."""
    inline = {_STYLE, "page.js"}
    packed = {name: gzip.compress(data, mtime=0) for name, data in files.items() if name not in inline}
    parts = [
        f'<script type="text/plain" data-name="{name}">{base64.b64encode(data).decode()}</script>\n'
        for name, data in packed.items()
    ]
    style = f"<style>\n{files[_STYLE].decode()}</style>"
    within = f'<!--\n{_licences().decode()}-->\n<div id="files" hidden>\n{"".join(parts)}</div>\n'
    script = f'{within}<script type="module">\n{files["page.js"].decode()}</script>'
    return _page(settings, style, script)


def _runtime() -> dict[str, bytes]:
    """Return the files of onnxruntime-web and of the tokenizers library, by their names in the export."""
    ort, tokenizers = npm.files_of(npm.RUNTIME), npm.files_of(npm.TOKENIZERS)
    return {
        "ort.js": ort["dist/ort.wasm.bundle.min.mjs"],
        "ort.wasm": ort["dist/ort-wasm-simd-threaded.wasm"],
        "tokenizers.js": tokenizers["dist/tokenizers.min.mjs"],
    }


def _licences() -> bytes:
    apache = npm.files_of(npm.TOKENIZERS)["LICENSE"].decode()
    return _shipped(LICENCES).decode().replace("{{apache}}", apache).encode()


def _shipped(name: str) -> bytes:
    return resources.files("repose.exporting").joinpath("web", name).read_bytes()
