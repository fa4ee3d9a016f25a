"""Which architectures a target can express: one function for each, and the table of docs/export.md made from them."""

from collections.abc import Callable, Iterator

from repose.graphs.coverage import not_computed
from repose.graphs.coverage import why_not as graphs
from repose.model.architecture import Architecture
from repose.model.presets import PRESETS

WhyNot = Callable[[Architecture], str | None]


def ctranslate2(architecture: Architecture) -> str | None:
    """Why CTranslate2 cannot compute what a model of this architecture does, axis by axis; None where it can."""
    return "; ".join(_no_ctranslate2(architecture)) or None


def _no_ctranslate2(a: Architecture) -> Iterator[str]:
    if not a.looks_ahead:
        yield from (f"{setting} is not among what this export was written for" for setting in not_computed(a))
    for side in ("encoder", "decoder"):
        name = f"{side}_token_norm"
        if (kind := getattr(a, name)) in ("sentence", "prefix"):
            yield f"{name} = {kind!r} has statistics of each sentence, where CTranslate2 looks embeddings up in a table"
        if kind == "running" and a.token_norm_site != "tokens":
            yield f"token_norm_site = {a.token_norm_site!r} normalises more than the tokens that CTranslate2 looks up"
    if a.values != "hidden":
        yield f"values = {a.values!r} has attention read token embeddings, where CTranslate2's reads hidden states"
    if a.self_score != "keep":
        yield f"self_score = {a.self_score!r} changes a token's score of itself, which CTranslate2 always keeps"
    if a.score_residual != "none":
        yield f"score_residual = {a.score_residual!r} hands scores on to the next layer, which CTranslate2's forget"
    if a.positions in ("untied", "untied_relative"):
        yield f"positions = {a.positions!r} adds scores of positions by themselves, for which CTranslate2 has no place"
    if a.positions == "alibi":
        yield "positions = 'alibi' lowers scores on both sides in the encoder, which CTranslate2 does in decoders alone"
    if a.attention_window is not None:
        yield f"attention_window = {a.attention_window} reaches to both sides, CTranslate2's window back alone"
    if a.norm == "both":
        yield "norm = 'both' normalises before the sublayer and after the sum, where CTranslate2 has one of the two"


WHY_NOT: dict[str, WhyNot] = {"ctranslate2": ctranslate2, "onnx, web": graphs}
"""Of each target."""


def table() -> str:
    """Presets by targets as Markdown: yes, or the setting in the way."""
    rows = [["preset", *WHY_NOT], ["---"] * (1 + len(WHY_NOT))]
    for name, preset in PRESETS.items():
        reasons = (why_not(preset.architecture) for why_not in WHY_NOT.values())
        rows.append([f"`{name}`", *("yes" if reason is None else f"no: {_short(reason)}" for reason in reasons)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _short(reason: str) -> str:
    """The settings that a reason names; of one that names none, its beginning."""
    settings = [" ".join(part.split()[:3]) for part in reason.split("; ") if part.split()[1] == "="]
    return ", ".join(f"`{setting}`" for setting in settings) or reason.partition(",")[0]
