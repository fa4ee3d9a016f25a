"""Servers without models, and with ones that shout; requests to them without a network, and with one."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from repose.decoding.lengths import Lengths
from repose.decoding.translator import Hypothesis, Translation
from repose.serving.app import Service, make_app
from repose.serving.catalogue import Catalogue, ServedModel
from repose.serving.log import Log
from repose.serving.messages import Explained, How
from repose.serving.metrics import Metrics
from repose.serving.protocol import guarded
from repose.serving.server import _HttpServer
from repose.serving.settings import Limits, ServeSettings


class Shouting:
    """A dispatcher that says what it reads in capitals; of each alternative, so many exclamation marks more."""

    ready = True
    in_use = staticmethod(contextlib.nullcontext)

    @staticmethod
    def promised(_tokens: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext(lambda _number: None)

    def __init__(self) -> None:
        self.asked: list[tuple[How, list[str]]] = []

    async def translate(
        self, how: How, sentences: Sequence[str], num_tokens: Sequence[int], *, num_cut: int = 0
    ) -> list[Translation]:
        assert len(sentences) == len(num_tokens) >= num_cut
        self.asked.append((how, list(sentences)))
        await asyncio.sleep(0)
        return [self.answer(how, sentence) for sentence in sentences]

    def answer(self, how: How, sentence: str) -> Translation:
        words = sentence.split()
        n = len(words)
        texts = [sentence.upper() + "!" * rank for rank in range(how.num_hypotheses)]
        if how.explain:
            return explained(translation(*texts), words, [[[[1 / n] * n] * n]])
        attention = np.eye(n + 1, n + 2, 1)[None, None] if how.attention else None
        return translation(*texts, words=words, attention=attention)


def translation(
    *texts: str, scores: Sequence[float] = (), words: Sequence[str] = (), attention: Any = None
) -> Translation:
    """Of one sentence: these texts, best first. `words`: those of the source, and in capitals those of the best one."""
    tokens = tuple(word.upper() for word in words)
    hypotheses = tuple(
        Hypothesis(text, tokens, score, score, True)
        for text, score in zip(texts, scores or [-1.0] * len(texts), strict=True)
    )
    return Translation(texts[0], hypotheses[0].score, hypotheses, ("[START]", *words, "[END]"), False, attention)


def explained(made: Translation, words: Sequence[str], attention: Any, **about: Any) -> Explained:
    """The same with what /explain says of it: by default, each token of the translation is a word in capitals."""
    told = {
        "src_labels": list(words),
        "tgt_labels": [word.upper() for word in words],
        "log_probs": [-0.5] * len(words),
        "src_spans": spans(words),
        "tgt_spans": spans(words),
    }
    return Explained(**vars(replace(made, attention=np.array(attention))), **{**told, **about})


def spans(words: Sequence[str]) -> list[tuple[int, int]]:
    """Where words stand that have a space between them."""
    ends = list(accumulate(len(word) + 1 for word in words))
    return [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]


def served(source: str, target: str, **about: Any) -> ServedModel:
    """A model that reads twenty words."""
    settings = {
        "tag": None,
        "tags": frozenset(),
        "also": (),
        "scripts": frozenset({"Latin"}),
        "about": {"name": f"{source}-{target}", "warnings": []},
    }
    tokenizer: Any = SimpleNamespace(
        encode=lambda text: ["[START]", *text.split(), "[END]"],
        most_tokens=lambda text: len(text.encode()) + 2,
        spans=lambda text: [(0, 0), *spans(text.split()), (len(text), len(text))],
    )
    return ServedModel(
        path=Path(f"{source}-{target}"),
        source=source,
        target=target,
        lengths=Lengths(tokenizer, usual=22, longest=22),
        tgt_tokenizer=SimpleNamespace(ids=list, decoded_spans=spans),  # type: ignore[arg-type]
        **{**settings, **about},
    )


def service(
    *models: ServedModel, dispatcher: Any = None, limits: dict[str, Any] | None = None, **settings: Any
) -> Service:
    """From Portuguese into English and back, unless told otherwise."""
    catalogue = Catalogue(models or (served("pt", "en"), served("en", "pt")))
    told = ServeSettings(runs=(), limits=Limits(**(limits or {})), **settings)
    made = Service(told, catalogue, dispatcher or Shouting(), Metrics(), Log(None))
    made.ready = True
    return made


def ask(app: Any, method: str, path: str, **how: Any) -> Any:
    """The response to one request, without a network."""

    async def send() -> Any:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await client.request(method, path, **how)

    return asyncio.run(send())


@contextlib.contextmanager
def running(made: Service, port: int = 0) -> Iterator[str]:
    """Its address, on a port of its own or this one, while it runs in a thread."""
    app = make_app(made)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, http=guarded(made.settings.limits), ws="none", lifespan="off",
        log_config=None, access_log=False, loop="asyncio", timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = _HttpServer(config, app)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)


def body(response: Any) -> Any:
    """What a response says; all are JSON."""
    assert response.headers["content-type"] == "application/json"
    return json.loads(response.content)


def samples(metrics: Metrics) -> dict[str, float]:
    """What it counts without labels, by name."""
    families = text_string_to_metric_families(metrics.exposed().decode())
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}
