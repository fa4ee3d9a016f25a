"""Make jobs from a user's arguments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from repose.bulk.inputs import Files, format_of
from repose.bulk.models import used
from repose.bulk.plan import RESERVED, SHARD_LINES, Failed, Format, Job, Plan
from repose.bulk.storage import Store
from repose.data.input_warning import InputWarning, warning_for, warnings_for_pairs
from repose.data.language import UNKNOWN
from repose.data.readers import refuse_packed
from repose.data.tables import FIELDS
from repose.data.tags import direction
from repose.decoding.translator import Translator
from repose.system.errors import ConfigError, unknown

_RECORDS = ("jsonl", "parquet")


def translation_job(
    model: Path,
    inputs: Sequence[str],
    *,
    form: str | None,
    field: str,
    load: Mapping[str, Any],
    search: Mapping[str, Any],
    shard_lines: int | None,
    output: Mapping[str, Any],
) -> tuple[Job, list[Files], list[Translator]]:
    """Return the translation job, its inputs, and its loaded model. `load`: as for `models.used`; `search`: as for
    `Translator.translate`, None for the model's own value; `output`: as in `Job`.

    Raises ConfigError for arguments that cannot be combined, DataError for files in another compression, and what
    `models.used` raises.
    """
    kind = _format(form, inputs)
    if (failed := output["failed"]) not in get_args(Failed):
        raise ConfigError(unknown("choice", failed, get_args(Failed)))
    if output["pairs"] and (kind != "text" or output["num_hypotheses"] > 1):
        raise ConfigError("--pairs is for text with one translation of each line: JSONL and Parquet keep the source")
    if kind == "text" and (field, output["into"]) != ("text", Job.into):
        raise ConfigError("--field and --into are for JSONL and Parquet: leave them out")
    if output["into"] in RESERVED or output["into"] == field:
        raise ConfigError(f"--into {output['into']} is taken: choose another name")
    used_model, translator = used(model, **load)
    resolved = {
        "beam_size": max(translator.beam_size, output["num_hypotheses"]),
        "length_penalty": translator.length_penalty,
        "no_repeat_ngram_size": translator.no_repeat_ngram_size,
        "to": translator.tag,
    } | {name: value for name, value in search.items() if value is not None}
    job = Job(
        work="translate",
        models=(used_model,),
        format=kind,
        fields=(field,) if kind in _RECORDS else (),
        shard_lines=shard_lines or SHARD_LINES,
        search=resolved,
        **output,
    )
    # If the search would refuse these settings at the first shard, refuse them now.
    translator.translate(["a"], **resolved, num_hypotheses=job.num_hypotheses)
    return job, [(name,) for name in inputs], [translator]


def scoring_job(
    forward: Path,
    backward: Path | None,
    files: Sequence[str],
    *,
    fields: tuple[str, str],
    load: Mapping[str, Any],
    tags: tuple[str | None, str | None] = (None, None),
    shard_lines: int | None,
    checks: bool,
) -> tuple[Job, list[Files], list[Translator]]:
    """Return the job that scores pairs, its input, and its loaded models. `tags`: the tag that each model reads before
    a source, None for its own. Raises as `translation_job` does."""
    kind: Any
    refuse_packed(files)
    match [format_of([name]) for name in files]:
        case [("tsv" | "jsonl" | "parquet") as kind]:
            pass
        case [("text" | "tsv" | "csv"), ("text" | "tsv" | "csv")]:
            kind = "text"
            if fields != FIELDS:
                raise ConfigError("--src-field and --tgt-field are for one file with both sides: leave them out")
        case _:
            raise ConfigError(
                "a corpus is two aligned text files, or one TSV, JSONL or Parquet file: name these (of a TMX or CSV "
                "file, `repose prepare FILE --out DIR` writes texts into DIR/text)"
            )
    folders = [folder for folder in (forward, backward) if folder is not None]
    found = [used(folder, **load) for folder in folders]
    translators = [translator for _, translator in found]
    used_tags = tuple(
        translator.tag if tag is None else tag for translator, tag in zip(translators, tags, strict=False)
    )
    for translator, tag in zip(translators, used_tags, strict=True):
        translator.encode(["a"], to=tag)  # refuses a tag that the model does not have
    job = Job(
        work="score",
        models=tuple(model for model, _ in found),
        format=kind,
        fields=() if kind == "text" else fields,
        shard_lines=shard_lines or SHARD_LINES,
        checks=checks,
        tags=used_tags,
    )
    if backward is not None:
        _check_directions(*(direction(one.config, tag) for one, tag in zip(translators, used_tags, strict=True)))
    return job, [tuple(files)], translators


def input_warnings(store: Store, plan: Plan, models: Sequence[Translator]) -> list[InputWarning]:
    """Return warnings about the first texts of a job for its first model. Raises what `Plan.windows` raises."""
    if not plan.shards:
        return []
    job, config = plan.job, models[0].config
    window = next(plan.windows(store, plan.shards[0]), None)
    texts = [record.texts for record in window.records if record.failure is None] if window is not None else []
    if job.work == "score":
        return warnings_for_pairs(config, [(src, tgt) for src, tgt in texts], job.tags[0])
    found = warning_for(config, (text for text, *_ in texts), (job.search or {}).get("to"))
    return [] if found is None else [found]


def _check_directions(forward: tuple[str, str], backward: tuple[str, str]) -> None:
    (src, tgt), (first, last) = forward, backward
    if any(a != b and UNKNOWN not in (a, b) for a, b in ((src, last), (tgt, first))):
        a, b, c, d = ("an unknown language" if code == UNKNOWN else code for code in (src, tgt, first, last))
        raise ConfigError(f"one model translates {a} into {b}, the other {c} into {d}: --backward is for the reverse")


def _format(form: str | None, inputs: Sequence[str]) -> Format:
    refuse_packed(inputs)
    kind: Any = form or format_of(inputs)
    if kind in ("tsv", "csv", "tmx") and form is None:
        raise ConfigError(
            f"{inputs[0]} holds pairs by its name: write the side to be translated into a text file, or give "
            "--format text to translate whole lines"
        )
    if kind not in (known := ("text", *_RECORDS)):
        raise ConfigError(unknown("format", kind, known))
    assert kind in get_args(Format)
    return kind
