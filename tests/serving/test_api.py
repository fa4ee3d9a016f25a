"""The API as LibreTranslate's clients use it: every kind of request, every answer, every error message."""

import asyncio
import gzip
import io
import json
import resource
import signal
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.datastructures import Headers
from stub_server import Shouting, ask, body, served, service, translation

from repose.data.lines import WHERE_ENCODING
from repose.data.tags import Taught
from repose.decoding.translator import Translation
from repose.documents import html as pages
from repose.serving import documents
from repose.serving.access import Access, Windows, address_of
from repose.serving.app import make_app
from repose.serving.catalogue import Catalogue, ServedModel
from repose.serving.dispatcher import Dispatcher
from repose.serving.log import Log
from repose.serving.messages import How
from repose.serving.metrics import Metrics
from repose.serving.refusals import RequestError
from repose.serving.settings import Batching, Limits, ServeSettings, default_req_limit
from repose.serving.spec import spec
from repose.system.errors import ConfigError, DataError

APP = make_app(service())
PT_EN = {"q": "olá mundo", "source": "pt", "target": "en"}
NOT_JSON = b"{"
LIMITED: dict[str, Any] = {"limits": {"char_limit": 12, "batch_limit": 2, "alternatives_limit": 3}}


def form(fields: dict[str, str]) -> dict[str, Any]:
    return {"data": fields}


def multipart(fields: dict[str, str]) -> dict[str, Any]:
    return {"files": {name: (None, value) for name, value in fields.items()}}


def query(fields: dict[str, str]) -> dict[str, Any]:
    """Everything in the query string, an empty body, no content type: deep-translator."""
    return {"params": fields}


WAYS = {
    "json": lambda fields: {"json": fields},
    "form": form,
    "multipart": multipart,
    "query": query,
    "json with charset": lambda fields: {
        "content": json.dumps(fields).encode(), "headers": {"content-type": "Application/JSON; charset=utf-8"}
    },
    "+json": lambda fields: {
        "content": json.dumps(fields).encode(), "headers": {"content-type": "application/ld+json"}
    },
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("fields", "status", "wanted"),
    [
        (PT_EN, 200, {"translatedText": "OLÁ MUNDO"}),
        (PT_EN | {"api_key": "", "format": "text", "secret": "x"}, 200, {"translatedText": "OLÁ MUNDO"}),
        (PT_EN | {"alternatives": "2"}, 200,
         {"translatedText": "OLÁ MUNDO", "alternatives": ["OLÁ MUNDO!", "OLÁ MUNDO!!"]}),
        (PT_EN | {"alternatives": "0"}, 200, {"translatedText": "OLÁ MUNDO"}),
        (PT_EN | {"alternatives": "-4"}, 200, {"translatedText": "OLÁ MUNDO"}),
        (PT_EN | {"alternatives": "many"}, 400, "Invalid request: alternatives parameter is not a number"),
        (PT_EN | {"alternatives": "4"}, 400, "Invalid request: alternatives parameter must be <= 3"),
        (PT_EN | {"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"source": "pt", "target": "en"}, 400, "Invalid request: missing q parameter"),
        ({"q": "a", "target": "en"}, 400, "Invalid request: missing source parameter"),
        ({"q": "a", "source": "pt"}, 400, "Invalid request: missing target parameter"),
        ({}, 400, "Invalid request: missing q parameter"),
        (PT_EN | {"q": "a much longer text"}, 400, "Invalid request: request (18) exceeds text limit (12)"),
        (PT_EN | {"source": "zz"}, 400, "zz is not supported"),
        (PT_EN | {"target": "zz"}, 400, "zz is not supported"),
        (PT_EN | {"target": "auto"}, 400, "auto is not supported"),
        (PT_EN | {"format": "xml"}, 400, "xml format is not supported"),
        (PT_EN | {"source": "zz", "format": "xml"}, 400, "zz is not supported"),
        (PT_EN | {"source": "fr"}, 400,
         "English (en) is not available as a target language from French (fr)"),
        (PT_EN | {"source": "fr", "format": "xml"}, 400, "xml format is not supported"),
        (PT_EN | {"source": "PT", "target": "EN"}, 200, {"translatedText": "OLÁ MUNDO"}),
        (PT_EN | {"target": "pt"}, 200, {"translatedText": "olá mundo"}),
    ],
)  # fmt: skip
def test_golden_table(way: str, fields: dict[str, str], status: int, wanted: object) -> None:
    app = make_app(service(served("pt", "en"), served("de", "fr"), **LIMITED))
    response = ask(app, "POST", "/translate", **WAYS[way](fields))
    assert response.status_code == status
    assert body(response) == (wanted if status == 200 else {"error": wanted})


def test_lists_are_of_json_alone() -> None:
    found = body(ask(APP, "POST", "/translate", json=PT_EN | {"q": ["um", "dois"], "alternatives": 1}))
    assert found == {"translatedText": ["UM", "DOIS"], "alternatives": [["UM!"], ["DOIS!"]]}
    first = ask(APP, "POST", "/translate", content=b"q=um&q=dois&source=pt&target=en")
    assert body(first) == {"translatedText": "UM"}
    both = ask(APP, "POST", "/translate?q=um&source=pt", data={"q": "dois", "target": "en"})
    assert body(both) == {"translatedText": "UM"}, "the query string comes first"
    of_body = ask(APP, "POST", "/translate?q=um&source=pt&target=en", json={"target": "en"})
    assert body(of_body) == {"error": "Invalid request: missing q parameter"}, "JSON stands for itself"


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (NOT_JSON, "Invalid JSON format"),
        (b"", "Invalid JSON format"),
        (b"[]", "Invalid JSON format"),
        (b"null", "Invalid JSON format"),
        (b'"q"', "Invalid JSON format"),
        (b"\xff\xfe", "Invalid JSON format"),
        (b"[" * 100_000, "Invalid JSON format"),
        (b'{"q": []}', "Invalid request: missing q parameter"),
        (b'{"q": 1}', "Invalid request: q parameter is not a string"),
        (b'{"q": ["a", 1]}', "Invalid request: q parameter is not a list of strings"),
        (b'{"q": "a", "source": ["pt"]}', "Invalid request: source parameter is not a string"),
        (b'{"q": "a", "source": "pt", "target": "en", "alternatives": null, "format": {}}',
         "{} format is not supported"),
        (b'{"q": "a", "source": "pt", "target": "en", "alternatives": []}',
         "Invalid request: alternatives parameter is not a number"),
        (b'{"q": "a", "source": "pt", "target": "en", "alternatives": NaN}',
         "Invalid request: alternatives parameter is not a number"),
        (b'{"q": "a", "source": "pt", "target": "en", "alternatives": true}',
         "Invalid request: alternatives parameter is not a number"),
    ],
)  # fmt: skip
def test_json_that_says_nothing(content: bytes, wanted: str) -> None:
    response = ask(APP, "POST", "/translate", content=content, headers={"content-type": "application/json"})
    assert (response.status_code, body(response)) == (400, {"error": wanted})


def test_batch_limit_counts_texts() -> None:
    app = make_app(service(**LIMITED))
    response = ask(app, "POST", "/translate", json=PT_EN | {"q": ["a", "b", "c"]})
    assert body(response) == {"error": "Invalid request: request (3) exceeds text limit (2)"}
    response = ask(app, "POST", "/translate", json=PT_EN | {"q": ["um", "a much longer text"]})
    assert body(response) == {"error": "Invalid request: request (18) exceeds text limit (12)"}
    assert ask(app, "POST", "/translate", json=PT_EN | {"q": ["um", "dois"]}).status_code == 200


def test_line_ends_of_forms_become_line_feeds_and_json_is_left_alone() -> None:
    lines = PT_EN | {"q": "um\r\n\r\ndois\r"}
    assert body(ask(APP, "POST", "/translate", data=lines)) == {"translatedText": "UM\n\nDOIS"}
    assert body(ask(APP, "POST", "/translate", json=lines)) == {"translatedText": "UM\r\n\r\nDOIS\r"}


def test_sentences_are_translated_one_by_one_and_put_together_again() -> None:
    shouting = Shouting()
    app = make_app(service(dispatcher=shouting))
    text = "  O gato dorme.  O cão\tcorre!\n\n\tBom dia. "
    found = body(ask(app, "POST", "/translate", json=PT_EN | {"q": text}))
    assert found == {"translatedText": text.upper()}
    ((_, sentences),) = shouting.asked
    assert sentences == ["O gato dorme.", "O cão\tcorre!", "Bom dia."]


def test_a_sentence_longer_than_the_model_reads_is_split_with_a_warning() -> None:
    text = ", ".join(["um dois três"] * 10)
    found = body(ask(APP, "POST", "/translate", json=PT_EN | {"q": [text, "um"]}))
    assert found["translatedText"] == [text.upper(), "UM"]
    assert found["warnings"] == [
        ["a sentence is longer than almost all that the model was trained on and was translated in parts"],
        [],
    ]
    pages = ask(APP, "POST", "/translate", json=PT_EN | {"q": [f"<p>{text}<p>um", "<p>um"], "format": "html"})
    assert body(pages)["warnings"] == found["warnings"]
    files = {"file": ("a.txt", f"um\n{text}".encode())}
    assert body(ask(APP, "POST", "/translate_file", data=PT_EN, files=files))["warnings"] == found["warnings"][0]
    found = body(ask(APP, "POST", "/translate", json=PT_EN | {"q": "Привет"}))
    assert found["warnings"] == [
        "the text is in Cyrillic script, which this model's training hardly saw: expect nonsense"
    ]


def test_a_line_in_a_script_that_training_hardly_saw_has_a_warning() -> None:
    """As in `repose translate`, however much there is in others."""
    text = "Bom dia a todos\n12\nПривет\nМир"
    for path in ("/translate", "/explain"):
        found = body(ask(APP, "POST", path, json=PT_EN | {"q": text}))
        assert found["warnings"] == [
            "line 3 is in Cyrillic script, which this model's training hardly saw: expect nonsense"
        ]
    assert "warnings" not in body(ask(APP, "POST", "/translate", json=PT_EN | {"q": "Bom dia, Мир"}))
    says_nothing = make_app(service(served("pt", "en", scripts=frozenset())))
    assert "warnings" not in body(ask(says_nothing, "POST", "/translate", json=PT_EN | {"q": text}))


def test_what_cannot_be_split_is_cut_with_a_warning() -> None:
    shouting = Shouting()

    def letters(text: str) -> list[tuple[int, int]]:
        return [(0, 0), *((place, place + 1) for place in range(len(text))), (len(text), len(text))]

    model = served("pt", "en")
    most_tokens = model.lengths.tokenizer.most_tokens
    tokenizer: Any = SimpleNamespace(
        encode=lambda text: ["[START]", *text, "[END]"], most_tokens=most_tokens, spans=letters
    )
    model = replace(model, lengths=replace(model.lengths, tokenizer=tokenizer))
    app = make_app(service(model, dispatcher=shouting))
    word = "x" * 3000
    found = body(ask(app, "POST", "/translate", json=PT_EN | {"q": [word, "um"]}))
    assert found["translatedText"] == ["X" * 20, "UM"]
    assert found["warnings"] == [["a sentence is longer than the model reads and was cut"], []]
    found = body(ask(app, "POST", "/translate", json=PT_EN | {"q": f"<b>{word}</b> um", "format": "html"}))
    assert found["translatedText"].startswith("<b>XXX")
    cut = ["a sentence is longer than the model reads and was cut"]
    assert found["warnings"] == cut
    for name, content in (("a.html", f"<b>{word}</b> um".encode()), ("a.txt", word.encode())):
        found = body(ask(app, "POST", "/translate_file", data=PT_EN, files={"file": (name, content)}))
        assert (sorted(found), found["warnings"]) == (["translatedFileUrl", "warnings"], cut)
    ask(app, "POST", "/explain", json=PT_EN | {"q": word[:999]})
    assert max(len(sentence) for _, sentences in shouting.asked for sentence in sentences) == 20


def test_tokens_of_documents_are_counted_in_threads_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones take long, and the server's end does not wait for these threads."""
    threads: set[str] = set()

    def size(_: ServedModel, text: str) -> int:
        threads.add(threading.current_thread().name.partition("_")[0])
        return len(text.split())

    monkeypatch.setattr(ServedModel, "size", size)
    files = {"file": ("a.txt", b"um dois\n" * 500)}
    ask(APP, "POST", "/translate_file", data=PT_EN, files=files)
    assert threads == {"documents"}


@pytest.mark.parametrize("text", ["12345", "...", "😀", "3.14 > 3"])
def test_texts_without_letters_stay_as_they_are(text: str) -> None:
    """As in documents, whatever the source and the format: small models garble numbers."""
    for how in ({}, {"source": "auto"}, {"format": "html"}):
        assert body(ask(APP, "POST", "/translate", json=PT_EN | {"q": text} | how))["translatedText"] == text
    found = body(ask(APP, "POST", "/translate", json=PT_EN | {"q": f"um.\n{text}\ndois", "alternatives": 1}))
    assert found["translatedText"] == f"UM.\n{text}\nDOIS"
    explained = body(ask(APP, "POST", "/explain", json=PT_EN | {"q": f"um.\n{text}\ndois"}))
    assert explained["translatedText"] == f"UM.\n{text}\nDOIS"
    assert len(explained["sentences"]) == 2


def test_no_limit_of_alternatives_is_that_of_the_beam() -> None:
    app = make_app(service(limits={"alternatives_limit": -1}))
    response = ask(app, "POST", "/translate", json=PT_EN | {"alternatives": 10**8})
    assert response.status_code == 400
    assert "must be <= 999" in body(response)["error"]


def test_alternatives_of_several_sentences() -> None:
    class Few(Shouting):
        def answer(self, _: How, sentence: str) -> Translation:
            return translation("A", "B", "A") if sentence == "um." else translation("X")

    app = make_app(service(dispatcher=Few()))
    found = body(ask(app, "POST", "/translate", json=PT_EN | {"q": "um. dois.", "alternatives": 2}))
    assert found == {"translatedText": "A X", "alternatives": ["B X"]}, "no duplicate, not the translation itself"


def test_blank_texts_and_texts_without_letters() -> None:
    auto = {"source": "auto", "target": "en"}
    assert body(ask(APP, "POST", "/translate", json=PT_EN | {"q": " \n"})) == {"translatedText": " \n"}
    nothing = {"confidence": 0.0, "language": "en"}
    found = body(ask(APP, "POST", "/translate", json=auto | {"q": "🙂🙂"}))
    assert found == {"translatedText": "🙂🙂", "detectedLanguage": nothing}
    assert body(ask(APP, "POST", "/detect", json={"q": "🙂"})) == [nothing]
    found = body(ask(APP, "POST", "/translate", json=auto | {"q": "🙂", "target": "zz"}))
    assert found == {"error": "zz is not supported"}


def test_fullwidth_letters_are_in_a_language() -> None:
    alone = make_app(service(served("pt", "en")))
    assert body(ask(alone, "POST", "/detect", json={"q": "ＯＫ"})) == [{"confidence": 100.0, "language": "pt"}]


@pytest.mark.parametrize("name", ["max_files", "wrong_key_limit", "file_timeout", "file_seconds"])
def test_a_limit_that_would_refuse_everything_is_refused(name: str) -> None:
    given: Any = {name: 0}
    with pytest.raises(ConfigError, match=f"{name} = 0, but it should be more than 0"):
        Limits(**given)


def test_detection_chooses_among_the_served_languages() -> None:
    portuguese, english = "o gato viu o cachorro na cozinha", "the cat has seen the dog in the kitchen"
    found = body(ask(APP, "POST", "/detect", data={"q": portuguese}))
    assert [one["language"] for one in found] == ["pt", "en"]
    assert 100 >= found[0]["confidence"] > found[1]["confidence"] >= 0
    many = make_app(service(served("pt", "en"), served("en", "de"), served("de", "fr"), served("fr", "pt")))
    assert len(body(ask(many, "POST", "/detect", json={"q": portuguese}))) == 3
    found = body(ask(APP, "POST", "/translate", json={"q": [portuguese, "gato"], "source": "auto", "target": "en"}))
    assert found["translatedText"] == [portuguese.upper(), "GATO"]
    assert len(found["detectedLanguage"]) == 2, "one for each text, of all together"
    assert found["detectedLanguage"][0] == found["detectedLanguage"][1]
    found = body(ask(APP, "POST", "/translate", json={"q": english, "source": "auto", "target": "en"}))
    assert found["translatedText"] == english, "it is in the target language already"
    alone = make_app(service(served("pt", "en")))
    found = body(ask(alone, "POST", "/detect", json={"q": english}))
    assert found == [{"confidence": 100.0, "language": "pt"}], "where nothing is to be chosen"
    unknown = make_app(service(served("xx", "en"), served("yy", "en")))
    response = ask(unknown, "POST", "/translate", json={"q": english, "source": "auto", "target": "en"})
    assert body(response) == {"error": "The language of the text could not be detected: name it as source"}


GERMAN = "der Hund hat die Katze in der Küche gesehen, und danach sind beide in den Garten gelaufen"


def test_a_text_that_no_model_reads_does_not_come_back_without_a_word() -> None:
    """A server that reads Portuguese and English takes German for one of them; into English, nothing is done then."""
    app = make_app(service(served("pt", "en"), served("en", "pt")))
    auto, warning = {"source": "auto", "target": "en"}, "the text seems to be in German (de), and was not translated"
    found = body(ask(app, "POST", "/translate", json=auto | {"q": [GERMAN, "ok"]}))
    assert found["detectedLanguage"][0]["language"] == "en"
    assert (found["translatedText"], found["warnings"]) == ([GERMAN, "ok"], [[warning], []])
    page = f"<p class='with the words of this page'>{GERMAN}</p>"
    assert body(ask(app, "POST", "/translate", json=auto | {"q": page, "format": "html"}))["warnings"] == [warning]
    assert body(ask(app, "POST", "/explain", json=auto | {"q": GERMAN}))["warnings"] == [warning]
    file = {"file": ("a.txt", GERMAN.encode(), "text/plain")}
    assert body(ask(app, "POST", "/translate_file", data=auto, files=file))["warnings"] == [warning]
    english = "the dog has seen the cat in the kitchen, and then both of them ran into the garden"
    assert "warnings" not in body(ask(app, "POST", "/translate", json=auto | {"q": english}))


def test_aliases_of_languages() -> None:
    app = make_app(service(served("pt-br", "zh-hans")))
    for source in ("pb", "pt-BR", "PT-br"):
        for target in ("zh", "zh-Hans"):
            found = ask(app, "POST", "/translate", json={"q": "um", "source": source, "target": target})
            assert body(found) == {"translatedText": "UM"}
    assert body(ask(app, "GET", "/languages")) == [
        {"code": "pt-BR", "name": "Portuguese (Brazil)", "targets": ["zh-Hans"]},
        {"code": "zh-Hans", "name": "Chinese", "targets": []},
    ]
    assert body(ask(app, "POST", "/detect", json={"q": "um"})) == [{"confidence": 100.0, "language": "pt-BR"}]


def test_one_model_of_two_directions_reads_its_tags() -> None:
    shouting = Shouting()
    app = make_app(service(served("gl", "en", tag="en", tags=frozenset({"en", "gl"})), dispatcher=shouting))
    assert {one["code"]: one["targets"] for one in body(ask(app, "GET", "/languages"))} == {"en": ["gl"], "gl": ["en"]}
    ask(app, "POST", "/translate", json={"q": "one", "source": "en", "target": "gl"})
    ask(app, "POST", "/translate", json={"q": "un", "source": "gl", "target": "en"})
    assert [how.tag for how, _ in shouting.asked] == ["gl", None]
    with pytest.raises(ConfigError, match="both translate from gl into en"):
        service(served("gl", "en"), served("gl", "en"))


def test_languages_and_settings() -> None:
    assert body(ask(APP, "GET", "/languages", headers={"content-type": "application/x-www-form-urlencoded"})) == [
        {"code": "en", "name": "English", "targets": ["pt"]},
        {"code": "pt", "name": "Portuguese", "targets": ["en"]},
    ]
    found = body(ask(APP, "GET", "/frontend/settings"))
    assert found == {
        "explainLimit": 1000,
        "charLimit": 5000,
        "alternativesLimit": 16,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [
            *(".txt", ".html", ".htm", ".srt", ".vtt", ".docx", ".pptx", ".odt", ".odp", ".ods", ".epub"),
        ],
        "language": {"source": {"code": "pt", "name": "Portuguese"}, "target": {"code": "en", "name": "English"}},
    }


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/detect", 405, "Method Not Allowed"),
        ("GET", "/translate", 405, "Method Not Allowed"),
        ("POST", "/languages", 405, "Method Not Allowed"),
        ("POST", "/health", 405, "Method Not Allowed"),
        ("GET", "/nothing", 404, "Not Found"),
        ("POST", "/translate/", 404, "Not Found"),
        ("GET", "/metrics", 404, "Not Found"),
        ("GET", "/download_file/../../etc/passwd", 404, "Not Found"),
        ("GET", "/download_file/..%2f..%2fetc%2fpasswd", 404, "Not Found"),
        ("GET", "/page/..%2f..%2fapp.py", 404, "Not Found"),
        ("GET", "/page/__init__.py", 404, "Not Found"),
        ("POST", "/suggest", 403, "Suggestions are disabled on this server."),
    ],
)
def test_errors_are_json_everywhere(method: str, path: str, status: int, error: str) -> None:
    response = ask(APP, method, path)
    assert (response.status_code, body(response)) == (status, {"error": error})
    assert response.headers["access-control-allow-origin"] == "*"


def test_a_compressed_body_is_refused_as_what_it_is() -> None:
    content = gzip.compress(json.dumps({**PT_EN, "q": "olá"}).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    response = ask(APP, "POST", "/translate", content=content, headers=headers)
    assert response.status_code == 415
    assert body(response) == {"error": "Invalid request: the body is compressed ('gzip'): send it as it is"}


def test_a_model_of_several_directions_is_served_in_all_that_it_says() -> None:
    also = (Taught("de", "en", "de"), Taught("en", "fr", "en"), Taught("fr", "en", "fr"), Taught("en", "und", "en"))
    also += (Taught("it", "en", "it"),)  # without its tag in the vocabulary
    tags = frozenset({"en", "de", "fr"})
    app = make_app(service(served("de", "en", tag="en", tags=tags, also=also)))
    found = {language["code"]: language["targets"] for language in body(ask(app, "GET", "/languages"))}
    assert found == {"de": ["en"], "en": ["de", "fr"], "fr": ["en"]}
    helped = Catalogue([served("gl", "en", also=(Taught("pt", "pt", "en"),)), served("pt", "en")])
    assert helped.direction("pt", "en").model.source == "pt", "whose own corpus helped another"


def test_answers_are_what_the_specification_says() -> None:
    """Of a text and of a list of texts, with all that there may be."""
    app = make_app(service())
    described = body(ask(app, "GET", "/spec"))["paths"]["/translate"]["post"]["responses"]["200"]["content"]
    schema = described["application/json"]["schema"]["properties"]
    for q in ("olá", ["olá", "мир"]):
        answer = body(
            ask(app, "POST", "/translate", json={"source": "auto", "target": "en", "q": q, "alternatives": 1})
        )
        assert answer.keys() <= schema.keys()
        for name, value in answer.items():
            assert fits(value, schema[name]), name


def test_an_explanation_is_what_the_specification_says() -> None:
    described = body(ask(APP, "GET", "/spec"))["paths"]["/explain"]["post"]["responses"]["200"]["content"]
    answer = body(ask(APP, "POST", "/explain", json={"source": "auto", "target": "en", "q": "olá", "alternatives": 1}))
    assert answer.keys() == described["application/json"]["schema"]["properties"].keys()


def fits(value: Any, schema: dict[str, Any]) -> bool:
    if "oneOf" in schema:
        return sum(fits(value, one) for one in schema["oneOf"]) == 1
    kinds = {"string": str, "array": list, "object": dict, "number": (int, float)}
    return isinstance(value, kinds[schema["type"]]) and (
        schema["type"] != "array" or all(fits(each, schema["items"]) for each in value)
    )


def test_headers() -> None:
    response = ask(APP, "OPTIONS", "/translate", headers={"Origin": "https://example.org"})
    assert response.status_code == 200
    wanted = {
        "access-control-allow-origin": "*",
        "access-control-allow-headers": "Authorization, Content-Type, X-Request-ID, X-Request-Timeout",
        "access-control-expose-headers": "Authorization, Retry-After, X-Request-ID",
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-credentials": "true",
        "access-control-max-age": "1728000",
    }
    for found in (response, ask(APP, "GET", "/health"), ask(APP, "POST", "/translate", json=PT_EN)):
        assert wanted.items() <= dict(found.headers).items()
        assert found.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in ask(APP, "GET", "/spec").headers
    assert ask(APP, "GET", "/health", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = [ask(APP, "GET", "/health", headers={"X-Request-ID": "a b"}).headers["x-request-id"] for _ in range(2)]
    assert len({"a b", *made}) == 3, "one that is no id is replaced"


def test_health() -> None:
    made = service()
    app = make_app(made)
    assert ask(app, "GET", "/health").content == b'{"status":"ok"}'
    assert ask(app, "GET", "/health/ready").status_code == 200
    made.ready = False
    assert [ask(app, "GET", f"/health/{what}").status_code for what in ("live", "ready")] == [200, 503]
    made.ready, made.dispatcher.ready = True, False
    assert ask(app, "GET", "/health/ready").status_code == 503, "all workers have died"


def test_answers_about_health_are_what_the_specification_says() -> None:
    made = service()
    app = make_app(made)
    paths = body(ask(app, "GET", "/spec"))["paths"]
    for made.ready in (True, False):
        for path in ("/health", "/health/live", "/health/ready"):
            response = ask(app, "GET", path)
            described = paths[path]["get"]["responses"][str(response.status_code)]["content"]["application/json"]
            assert body(response).keys() == described["schema"]["properties"].keys()


def test_the_specification_is_of_the_routes() -> None:
    made = service(metrics=True)
    assert {"/translate_file", "/download_file/{name}", "/metrics"} <= spec(made.settings)["paths"].keys()
    none = spec(service(files=False).settings)["paths"]
    assert not {"/suggest", "/translate_file", "/download_file/{name}", "/metrics"} & none.keys()
    described = {(path, method) for path, methods in spec(made.settings)["paths"].items() for method in methods}
    app = make_app(made)
    found = body(ask(app, "GET", "/spec"))
    assert found["openapi"].startswith("3.")
    for path, method in described:
        response = ask(app, method.upper(), path.replace("{name}", "none"))
        assert response.status_code not in (405, 500), path
        assert response.status_code != 404 or "{" in path
    docs = ask(app, "GET", "/docs")
    assert docs.headers["content-security-policy"].startswith("default-src 'self'")
    assert all(path in docs.text for path, _ in described)


def test_the_specification_tells_what_requests_are_refused_with() -> None:
    """But 405, which no method that it lists is answered with."""
    secret = service(metrics=True, metrics_token="secret")
    paths = spec(secret.settings)["paths"]
    assert str(ask(make_app(secret), "GET", "/metrics").status_code) == "401"
    assert "401" in paths["/metrics"]["get"]["responses"]
    assert "401" not in spec(service(metrics=True).settings)["paths"]["/metrics"]["get"]["responses"]
    assert {"408", "413", "415", "431", "500", "503", "504"} <= paths["/translate"]["post"]["responses"].keys()
    for path, methods in paths.items():
        if "get" in methods:
            of_get = methods["get"]["responses"].keys()
            assert not {"400", "403", "413", "415", "429", "504", "507"} & of_get, "it has no body and no limits"
            assert ("404" in of_get) == ("{name}" in path)


def test_the_specification_tells_which_endpoint_takes_a_token() -> None:
    described = spec(service(metrics=True, metrics_token="secret").settings)
    [[name]] = described["paths"]["/metrics"]["get"]["security"]
    assert described["components"]["securitySchemes"][name] == {"type": "http", "scheme": "bearer"}
    open_to_all = spec(service(metrics=True).settings)
    assert "security" not in open_to_all["paths"]["/metrics"]["get"]
    assert not open_to_all["components"]["securitySchemes"]


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = ask(APP, "GET", "/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert ask(APP, "GET", "/page/index.html").headers["content-security-policy"].startswith("default-src 'self'")
    assert ask(make_app(service(page=False)), "GET", "/").status_code == 404


def test_explain() -> None:
    found = body(ask(APP, "POST", "/explain", json=PT_EN | {"q": " um dois.\ntrês "}))
    assert found["translatedText"] == " UM DOIS.\nTRÊS "
    assert found["model"] == {"name": "pt-en", "warnings": []}
    first, second = found["sentences"]
    assert first["source"]["tokens"] == [
        {"text": "um", "start": 1, "end": 3, "continues": False},
        {"text": "dois.", "start": 4, "end": 9, "continues": False},
    ]
    assert first["target"]["tokens"][1] == {
        "text": "DOIS.", "start": 4, "end": 9, "continues": False, "logProbability": -0.5
    }  # fmt: skip
    assert first["attention"] == [[[[0.5, 0.5], [0.5, 0.5]]]]
    assert (second["source"]["start"], second["target"]["start"]) == (10, 10)
    assert ask(APP, "POST", "/explain", json=PT_EN | {"q": "a" * 1000}).status_code == 200
    too_long = ask(APP, "POST", "/explain", json=PT_EN | {"q": "a" * 1001})
    assert body(too_long) == {"error": "Invalid request: request (1001) exceeds text limit (1000)"}


def test_a_files_language_is_found_out_by_its_letters() -> None:
    """Not by the markup around them, which is English."""
    head = "<style>header { color: the-words-of-this-page; }</style><script>the words and the like</script>"
    page = f"{head}<p class='header footer the-page with-words'>O gato viu o cachorro na cozinha</p>"
    auto = {"source": "auto", "target": "en"}
    found = body(ask(APP, "POST", "/translate", json=auto | {"q": page, "format": "html"}))
    assert (found["detectedLanguage"]["language"], "O GATO VIU" in found["translatedText"]) == ("pt", True)
    url = body(ask(APP, "POST", "/translate_file", data=auto, files={"file": ("a.html", page.encode(), "text/html")}))
    download = ask(APP, "GET", url["translatedFileUrl"].removeprefix("http://testserver"))
    assert b"O GATO VIU" in download.content


@pytest.mark.parametrize(
    ("own", "asked", "alternatives", "beam"),
    [(8, None, 1, 8), (8, None, 0, None), (2, None, 1, 4), (8, 5, 1, 5), (8, None, 10, 11), (8, 1, 0, 1)],
)
def test_alternatives_are_not_searched_with_a_narrower_beam(
    own: int, asked: int | None, alternatives: int, beam: int | None
) -> None:
    dispatcher = Shouting()
    app = make_app(service(served("pt", "en", beam_size=own), dispatcher=dispatcher, beam_size=asked))
    for path in ("/translate", "/explain"):
        assert ask(app, "POST", path, json=PT_EN | {"alternatives": alternatives}).status_code == 200
        assert dispatcher.asked[-1][0].beam_size == beam


def test_a_list_of_pages_is_one_request() -> None:
    """So that the queue does not refuse the later pages for the earlier ones."""
    dispatcher = Shouting()
    pages = [f"<p>{word} <b>dorme</b></p>" for word in ("um", "dois", "tres")]
    app = make_app(service(dispatcher=dispatcher))
    found = body(ask(app, "POST", "/translate", json=PT_EN | {"q": [*pages, "<p>gato"], "format": "html"}))
    assert [text.startswith("<p>") for text in found["translatedText"]] == [True] * 4
    assert [sorted(sentences) for _, sentences in dispatcher.asked] == [
        ["gato"],
        ["dois dorme", "tres dorme", "um dorme"],
    ]


def test_text_files() -> None:
    content = ("O gato dorme.\n\n" * 300).encode()
    file = {"file": ("text.txt", content, "text/plain")}
    url = body(ask(APP, "POST", "/translate_file", data={"source": "pt", "target": "en"}, files=file))
    assert url["translatedFileUrl"].startswith("http://testserver/download_file/")
    download = ask(APP, "GET", url["translatedFileUrl"].removeprefix("http://testserver"))
    assert download.content == content.upper()
    assert download.headers["content-disposition"].startswith("attachment")
    errors = {
        "Invalid request: missing file parameter": {"data": PT_EN},
        "Invalid request: missing source parameter": {"data": {"target": "en"}, "files": file},
        "Invalid request: file format .exe is not supported": {
            "data": PT_EN, "files": {"file": ("../../a.exe", b"", "text/plain")}
        },
        "Invalid request: the file is not in UTF-8: save it in UTF-8, or convert it with `iconv -f ENCODING -t utf-8`, "
        + WHERE_ENCODING: {
            "data": PT_EN, "files": {"file": ("a.txt", b"\xff\xff")}
        },
    }  # fmt: skip
    for error, how in errors.items():
        assert body(ask(APP, "POST", "/translate_file", **how)) == {"error": error}
    app = make_app(service(files=False))
    assert ask(app, "POST", "/translate_file", data=PT_EN, files=file).status_code == 403
    app = make_app(service(limits={"max_body": 100}))
    assert ask(app, "POST", "/translate_file", data=PT_EN, files=file).status_code == 413


def test_no_file_is_promised_that_nobody_could_fetch() -> None:
    """They end with the server."""
    made, file = service(), {"file": ("a.txt", "olá".encode(), "text/plain")}
    app, answer = make_app(made), made.answer

    async def end_meanwhile(*work: Any) -> Any:
        found = await answer(*work)
        made.ending = True
        return found

    made.answer = end_meanwhile  # type: ignore[method-assign]
    for _ in range(2):  # at its end, and at once
        found = ask(app, "POST", "/translate_file", data=PT_EN, files=file)
        assert (found.status_code, body(found)) == (503, {"error": "Server is closing"})
    assert not made.downloads._files


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.txt", "olá".encode(), "text/plain; charset=utf-8"),
        ("a.txt", b"\xff\xfe" + "olá".encode("utf-16-le"), "text/plain; charset=utf-16"),
        ("a.html", "<p>olá".encode(), "text/html; charset=utf-8"),
        ("a.htm", b"<meta charset=latin1><p>ol\xe1", "text/html"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nolá\n".encode(), "application/x-subrip"),
    ],
)
def test_a_translated_file_says_its_own_encoding(name: str, content: bytes, kind: str) -> None:
    url = body(ask(APP, "POST", "/translate_file", data=PT_EN, files={"file": (name, content)}))["translatedFileUrl"]
    assert ask(APP, "GET", url.removeprefix("http://testserver")).headers["content-type"] == kind


def test_web_pages_keep_their_tags() -> None:
    page = '<p class="a">O gato <b>preto</b> dorme.</p><!-- c --><script>if (a < b) c()</script><p>Bom &amp; dia'
    wanted = '<p class="a">O GATO <b>PRETO</b> DORME.</p><!-- c --><script>if (a < b) c()</script><p>BOM &amp; DIA'
    for way in (WAYS["json"], WAYS["form"]):
        found = ask(APP, "POST", "/translate", **way(PT_EN | {"q": page, "format": "html", "alternatives": "2"}))
        assert body(found) == {"translatedText": wanted, "alternatives": []}
    found = body(ask(APP, "POST", "/translate", json=PT_EN | {"q": [page, "<i>um</i>"], "format": "html"}))
    assert found == {"translatedText": [wanted, "<i>UM</i>"]}
    file = {"file": ("Page.HTML", page.encode(), "text/html")}
    url = body(ask(APP, "POST", "/translate_file", data=PT_EN, files=file))["translatedFileUrl"]
    download = ask(APP, "GET", url.removeprefix("http://testserver"))
    assert download.text == wanted
    assert download.headers["content-disposition"] == 'attachment; filename="translated.html"'
    assert download.headers["content-security-policy"].startswith("sandbox"), "it is a stranger's page"


def test_subtitles() -> None:
    subtitles = "1\n00:00:01,000 --> 00:00:02,000\nO gato dorme.\n\n2\n00:00:03,000 --> 00:00:04,000\nBom dia.\n"
    url = body(ask(APP, "POST", "/translate_file", data=PT_EN, files={"file": ("a.srt", subtitles)}))
    download = ask(APP, "GET", url["translatedFileUrl"].removeprefix("http://testserver"))
    assert download.text == subtitles.replace("O gato dorme.", "O GATO DORME.").replace("Bom dia.", "BOM DIA.")


def test_suggestions_are_kept_where_there_is_a_file(tmp_path: Any) -> None:
    app = make_app(service(suggestions=tmp_path / "said.jsonl"))
    fields = PT_EN | {"s": "hello\nworld"}
    assert body(ask(app, "POST", "/suggest", json=fields)) == {"success": True}
    assert body(ask(app, "POST", "/suggest", json=PT_EN)) == {"error": "Invalid request: missing s parameter"}
    assert body(ask(app, "POST", "/suggest", json=fields | {"target": "zz"})) == {"error": "zz is not supported"}
    too_long = body(ask(app, "POST", "/suggest", json=fields | {"s": "a" * 5_001}))
    assert too_long == {"error": "Invalid request: request (5001) exceeds text limit (5000)"}
    assert [json.loads(line) for line in (tmp_path / "said.jsonl").read_text("utf-8").splitlines()] == [fields]


def test_a_suggestion_is_kept_whole_or_not_at_all(tmp_path: Any) -> None:
    said = tmp_path / "said.jsonl"
    app = make_app(service(suggestions=said))
    assert body(ask(app, "POST", "/suggest", json=PT_EN | {"s": "first"})) == {"success": True}
    before, most = said.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, most[1]))  # as on a full disk
    try:
        response = ask(app, "POST", "/suggest", json=PT_EN | {"s": "second"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        signal.signal(signal.SIGXFSZ, handler)
    assert (response.status_code, said.read_bytes()) == (507, before)
    assert body(ask(app, "POST", "/suggest", json=PT_EN | {"s": "third"})) == {"success": True}
    assert [json.loads(line)["s"] for line in said.read_text("utf-8").splitlines()] == ["first", "third"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_suggestion_that_cannot_be_kept_says_why() -> None:
    app = make_app(service(suggestions=Path("/dev/full")))  # which cannot be truncated
    response = ask(app, "POST", "/suggest", json=PT_EN | {"s": "first"})
    assert body(response) == {"error": "The suggestion cannot be kept: No space left on device"}


def test_api_keys(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("right-one\nright-two\n")
    app = make_app(service(api_keys=keys, key_required=True, limits={"wrong_key_limit": 3}))

    def with_key(key: str | None) -> tuple[int, object]:
        response = ask(app, "POST", "/translate", data=PT_EN if key is None else PT_EN | {"api_key": key})
        return response.status_code, body(response)

    assert with_key("right-two") == (200, {"translatedText": "OLÁ MUNDO"})
    asked = {"error": "Please contact the server operator to get an API key"}
    assert with_key(None) == with_key("") == (400, asked)
    assert [with_key("right") for _ in range(3)] == [(403, {"error": "Invalid API key"})] * 3
    flood = (403, {"error": "Too many request limits violations"})
    assert with_key("wrong") == with_key("right-one") == flood, "who guesses is not told"
    keys.write_text("right-one\n\nright-two # hers\n")
    with pytest.raises(DataError, match="keys, line 3: a key has no white space: write one key per line"):
        service(api_keys=keys)
    keys.write_text("\N{ZERO WIDTH NO-BREAK SPACE}right-one\r\n", encoding="utf-8")  # as Windows writes it
    with pytest.raises(ConfigError, match="give a file with a key per line"):
        service(key_required=True)
    elsewhere = make_app(service(api_keys=keys, key_required=True, key_url="https://example.org/key"))
    found = body(ask(elsewhere, "POST", "/translate", data=PT_EN))
    assert found == {"error": "Visit https://example.org/key to get an API key"}
    assert ask(elsewhere, "POST", "/translate", data={**PT_EN, "api_key": "right-one"}).status_code == 200


def test_requests_per_minute() -> None:
    app = make_app(service(limits={"req_limit": 3}, trust_forwarded_for=True))

    def request(address: str, q: object = "um") -> Any:
        headers = {"X-Forwarded-For": f"evil, {address}"}
        return ask(app, "POST", "/translate", json=PT_EN | {"q": q}, headers=headers)

    assert request("192.0.2.1", ["um", "dois"]).status_code == 200, "a list costs as many as it has texts"
    assert request("192.0.2.1").status_code == 200
    refused = request("192.0.2.1")
    assert (refused.status_code, body(refused)) == (429, {"error": "Slowdown: 3 per 1 minute"})
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert request("192.0.2.2").status_code == 200
    assert [request(f"2001:db8::{n}").status_code for n in range(4)] == [200, 200, 200, 429], "of one network"
    assert [request(f"::ffff:1.2.3.{n}").status_code for n in range(4)] == [200] * 4, "IPv4, on a listener of both"
    assert [request(f"5.6.7.8:{n}").status_code for n in range(4)] == [200, 200, 200, 429], "one address, many ports"
    assert [request(f"[2001:db9::1]:{n}").status_code for n in range(4)] == [200, 200, 200, 429]
    assert request("5.6.7.9:1").status_code == 200


@pytest.mark.parametrize(("unit", "seconds"), [("minute", 60), ("hour", 3_600), ("day", 86_400)])
def test_a_window_ends(unit: str, seconds: int) -> None:
    now = 1_000.0
    windows = Windows(unit, lambda: now)
    assert [windows.add("a"), windows.add("a"), windows.add("b")] == [1, 2, 1]
    now += seconds - 1
    assert (windows.add("a"), windows.seconds_left("a")) == (3, 1.0)
    now += 1
    assert (windows.count("a"), windows.add("a"), windows.seconds_left("a")) == (0, 1, seconds)


def test_only_so_many_clients_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.serving.access._MOST_CLIENTS", 10)
    windows = Windows("minute")
    for client in range(25):
        windows.add(str(client), 2)
    counts = [windows.count(str(client)) for client in range(25)]
    assert counts[-1] == 2
    assert sum(map(bool, counts)) <= 10


def test_who_came_last_is_remembered_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.serving.access._MOST_CLIENTS", 10)
    windows = Windows("minute")
    for client in "abcdefghijca":
        windows.add(client)
    assert [windows.count(client) for client in "abcdefghij"] == [2, 1, 2, 1, 1, 1, 1, 1, 1, 1]
    windows.add("k")
    assert [client for client in "abcdefghijk" if not windows.count(client)] == ["b"]


def test_keys_that_are_no_text_are_wrong_ones(tmp_path: Any) -> None:
    (tmp_path / "keys").write_text("7\n")
    access = Access(ServeSettings(runs=(), api_keys=tmp_path / "keys"))
    for key in (7.5, ["7"], {"7": 7}, True, "\ud800"):
        with pytest.raises(RequestError, match="Invalid API key"):
            access.check("1.2.3.4", key)
    assert access.check("1.2.3.4", "7") != "1.2.3.4"


def test_nobody_gets_back_what_was_counted() -> None:
    access = Access(ServeSettings(runs=(), limits=Limits(req_limit=3)))
    access.charge("a", 2)
    access.charge("a", 1, counted=2)
    access.charge("a", 1)
    with pytest.raises(RequestError, match="Slowdown"):
        access.charge("a", 1)


@pytest.mark.parametrize(
    ("host", "forwarded", "trusted", "address"),
    [
        ("192.0.2.1", "9.9.9.9", False, "192.0.2.1"),
        ("192.0.2.1", "9.9.9.9", True, "9.9.9.9"),
        ("192.0.2.1", "no address", True, "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "", True, "2001:db8:1:2::/64"),
        (None, "", True, ""),
    ],
)
def test_whom_a_request_is_from(host: str | None, forwarded: str, trusted: bool, address: str) -> None:
    headers = Headers({"X-Forwarded-For": forwarded})
    assert address_of(host, headers, trust_forwarded_for=trusted) == address


def test_who_has_a_key_is_counted_by_it(tmp_path: Any) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    app = make_app(service(api_keys=tmp_path / "keys", limits={"req_limit": 1}, trust_forwarded_for=True))

    def request(key: str, address: str) -> int:
        text = PT_EN | {"q": "um", "api_key": key}
        return int(ask(app, "POST", "/translate", json=text, headers={"X-Forwarded-For": address}).status_code)

    assert [request("one", "192.0.2.1"), request("two", "192.0.2.1")] == [200, 200]
    assert request("one", "192.0.2.2") == 429


def test_a_list_to_detect_counts_once_for_each_text() -> None:
    app = make_app(service(limits={"req_limit": 3}))
    statuses = [ask(app, "POST", "/detect", json={"q": ["um", "dois"]}).status_code for _ in range(2)]
    assert statuses == [200, 429]


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/translate", {"content": b"--x", "headers": {"content-type": "multipart/form-data"}}),
        ("/translate", {"content": b"{", "headers": {"content-type": "application/json"}}),
        ("/translate_file", {"data": PT_EN}),
    ],
    ids=["form", "JSON", "no file"],
)
def test_what_cannot_be_read_counts_as_a_request(path: str, refused: dict[str, Any]) -> None:
    app = make_app(service(limits={"req_limit": 2}))
    assert [ask(app, "POST", path, **refused).status_code for _ in range(3)] == [400, 400, 429]
    assert ask(app, "POST", "/translate", json=PT_EN).status_code == 429


def test_a_line_of_the_proxys_own_goes_before_the_clients() -> None:
    app = make_app(service(limits={"req_limit": 1}, trust_forwarded_for=True))
    statuses = []
    for client in ("9.9.9.1", "9.9.9.2"):
        headers = [("X-Forwarded-For", client), ("X-Forwarded-For", "192.0.2.1")]
        statuses.append(ask(app, "POST", "/translate", json=PT_EN, headers=headers).status_code)
    assert statuses == [200, 429]


def test_what_costs_more_than_the_limit_is_done_when_it_comes_alone() -> None:
    app = make_app(service(limits={"req_limit": 2, "char_limit": 10}))
    file = {"file": ("a.txt", b"um " * 20, "text/plain")}
    statuses = [ask(app, "POST", "/translate_file", data=PT_EN, files=file).status_code for _ in range(2)]
    assert statuses == [200, 429]


def test_what_is_refused_is_not_counted() -> None:
    app = make_app(service(limits={"hourly_req_limit": 5, "daily_req_limit": 10}))
    sizes = (1, 1, 4, 1, 1, 1, 1)
    answers = [ask(app, "POST", "/translate", json={**PT_EN, "q": ["um"] * size}) for size in sizes]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 200, 200, 200, 429]


def docx(run: str) -> bytes:
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        text = f"<w:p><w:r>{run}</w:r></w:p>"
        file.writestr("word/document.xml", f'<w:document xmlns:w="{word}"><w:body>{text}</w:body></w:document>')
    return packed.getvalue()


def test_a_translation_that_would_be_far_larger_than_its_document_is_refused() -> None:
    looks = f'<w:rPr><w:x w:y="{"z" * 10_000}"/></w:rPr>'
    upload = {"file": ("a.docx", docx(looks + "<w:t>um </w:t><w:tab/>" * 200))}
    refused = ask(APP, "POST", "/translate_file", data=PT_EN, files=upload)
    assert refused.status_code == 400
    assert body(refused)["error"].startswith("Invalid request: the translated document would be far larger")


def test_an_office_file_counts_as_what_is_in_it() -> None:
    content = docx(f"<w:t>{'um ' * 3_000}</w:t>")
    assert len(content) < 1_000
    app = make_app(service(limits={"req_limit": 5, "char_limit": 1_000}))
    upload = {"file": ("a.docx", content)}
    assert ask(app, "POST", "/translate", data=PT_EN).status_code == 200
    refused = ask(app, "POST", "/translate_file", data=PT_EN, files=upload)
    assert (refused.status_code, body(refused)) == (429, {"error": "Slowdown: 5 per 1 minute"})
    app = make_app(service(limits={"req_limit": 5, "char_limit": 1_000}))
    statuses = [ask(app, "POST", "/translate_file", data=PT_EN, files=upload).status_code for _ in range(2)]
    assert statuses == [200, 429], "more than the limit is done where it comes first"


def test_a_page_with_too_many_tags_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_NODES", 10)
    app, page = make_app(service()), "<p>um gato</p>" * 20
    asked = {**PT_EN, "q": page, "format": "html"}
    answers = [ask(app, "POST", "/translate", json={**asked, "source": source}) for source in ("pt", "auto")]
    answers.append(ask(app, "POST", "/translate_file", data=PT_EN, files={"file": ("a.html", page.encode())}))
    assert [answer.status_code for answer in answers] == [400] * 3
    assert all("elements and texts: split it" in body(answer)["error"] for answer in answers)


def test_a_cancelled_upload_keeps_its_place_until_its_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def slow(_: bytes, suffix: str) -> None:
        time.sleep(0.3)
        ended.append(suffix)

    async def cancelled() -> None:
        monkeypatch.setattr(documents, "read_document", slow)
        task = asyncio.create_task(documents.read(b"", ".docx"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [".docx"]

    asyncio.run(cancelled())


def test_requests_per_hour_and_day_beside_those_per_minute() -> None:
    app = make_app(service(limits={"req_limit": 3, "hourly_req_limit": 2}))
    assert [ask(app, "POST", "/translate", json=PT_EN).status_code for _ in range(3)] == [200, 200, 429]
    app = make_app(service(limits={"daily_req_limit": 1}))
    answers = [ask(app, "POST", "/translate", json=PT_EN) for _ in range(2)]
    assert body(answers[1]) == {"error": "Slowdown: 1 per 1 day"}
    assert 86_300 < int(answers[1].headers["retry-after"]) <= 86_400
    with pytest.raises(ConfigError, match="hourly_req_limit = 0"):
        service(limits={"hourly_req_limit": 0})


def test_everything_below_a_prefix() -> None:
    app = make_app(service(url_prefix="/mt/v1", metrics=True))
    assert body(ask(app, "POST", "/mt/v1/translate", json=PT_EN)) == {"translatedText": "OLÁ MUNDO"}
    statuses = {
        "/mt/v1/": 200, "/mt/v1/page/app.js": 200, "/mt/v1/languages": 200, "/mt/v1/health": 200, "/mt/v1": 308,
        "/mt/v1x/languages": 404, "/languages": 404, "/": 404, "/mt": 404, "/health/ready": 200,
    }  # fmt: skip
    assert {path: ask(app, "GET", path).status_code for path in statuses} == statuses
    assert ask(app, "GET", "/mt/v1").headers["location"] == "/mt/v1/"
    assert ask(app, "GET", "/mt/v1?q=um%20gato&source=pt").headers["location"] == "/mt/v1/?q=um%20gato&source=pt"
    assert body(ask(app, "GET", "/languages")) == {"error": "Not Found"}
    assert body(ask(app, "GET", "/mt/v1/spec"))["servers"] == [{"url": "/mt/v1"}]
    found = body(ask(app, "POST", "/mt/v1/translate_file", data=PT_EN, files={"file": ("a.txt", b"um", "text/plain")}))
    assert found["translatedFileUrl"].startswith("http://testserver/mt/v1/download_file/")
    path = found["translatedFileUrl"].removeprefix("http://testserver")
    assert ask(app, "GET", path).text == "UM"
    assert 'endpoint="/translate"' in ask(app, "GET", "/mt/v1/metrics").text
    with pytest.raises(ConfigError, match="is not a path"):
        service(url_prefix="mt")
    with pytest.raises(ConfigError, match="drain_seconds = inf is not a number"):
        service(drain_seconds=float("inf"))


def test_the_scheme_of_a_trusted_proxy() -> None:
    for trust, scheme in ((True, "https"), (False, "http")):
        app = make_app(service(trust_forwarded_for=trust))
        file = {"file": ("a.txt", b"um", "text/plain")}
        headers = {"X-Forwarded-Proto": "https"}
        found = body(ask(app, "POST", "/translate_file", data=PT_EN, files=file, headers=headers))
        assert found["translatedFileUrl"].startswith(f"{scheme}://")


@pytest.mark.parametrize(
    ("host", "limit"),
    [("127.0.0.1", -1), ("localhost", -1), ("::1", -1), ("0.0.0.0", 300), ("::", 300), ("example.org", 300)],
)
def test_strangers_are_limited_by_default(host: str, limit: int) -> None:
    assert default_req_limit(host) == limit


def test_metrics_are_prometheus_and_name_no_one() -> None:
    app = make_app(service(metrics=True, metrics_token="secret"))
    for wrong in ({}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}):
        assert ask(app, "GET", "/metrics", headers=wrong).status_code == 401
    ask(app, "POST", "/translate", json=PT_EN)
    ask(app, "GET", "/unknown/path")
    response = ask(app, "GET", "/metrics", headers={"Authorization": "Bearer secret"})
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    counted = {(s.labels["endpoint"], s.labels["code"]): s.value
               for s in families["repose_requests"].samples if s.name.endswith("_total")}  # fmt: skip
    assert counted == {("/metrics", "401"): 3, ("/translate", "200"): 1, ("other", "404"): 1}
    assert [sample.value for sample in families["repose_requests_in_flight"].samples] == [1], "this one"
    assert {"repose_request_seconds", "repose_queue_tokens", "repose_batch_rows", "repose_model_info"} <= set(families)
    assert "olá" not in response.text


def test_what_goes_wrong_inside_is_an_answer_without_the_text() -> None:
    class Broken(Shouting):
        def answer(self, _: How, sentence: str) -> Translation:
            raise RuntimeError(f"cannot say {sentence}")

    made = service(dispatcher=Broken())
    stream = io.StringIO()
    made.log = Log(stream)
    response = ask(make_app(made), "POST", "/translate", json=PT_EN)
    assert (response.status_code, body(response)) == (500, {"error": "Internal error"})
    log = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in log] == ["error", "request"]
    assert log[0]["kind"] == "RuntimeError"
    assert log[0]["id"] == log[1]["id"] == response.headers["x-request-id"]
    assert "mundo" not in json.dumps(log)


def test_on_a_terminal_the_log_has_what_goes_wrong_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    log = Log(stream)
    for event in ("worker_ready", "ready", "request", "error", "refused"):
        log(event)
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["error", "refused"]


def test_a_request_that_takes_too_long_is_given_up() -> None:
    class Slow(Shouting):
        async def translate(self, *_: Any, **__: Any) -> list[Translation]:
            await asyncio.sleep(60)
            return []

    made, stream = service(dispatcher=Slow(), limits={"timeout": 20.0}), io.StringIO()
    made.log = Log(stream)
    response = ask(make_app(made), "POST", "/translate", json=PT_EN, headers={"X-Request-Timeout": "0.05"})
    assert (response.status_code, body(response)) == (504, {"error": "Request was not answered within 0.05 seconds"})
    line = json.loads(stream.getvalue())
    assert (line["status"], line["texts"], line["characters"]) == (504, 1, len(PT_EN["q"]))
    app = make_app(service(dispatcher=Slow(), limits={"timeout": 0.05}))
    response = ask(app, "POST", "/translate", json=PT_EN, headers={"X-Request-Timeout": "1"})
    assert body(response) == {"error": "Request was not answered within 0.05 seconds"}, "no client can raise it"


def test_a_file_may_take_longer_than_a_text() -> None:
    class Slow(Shouting):
        async def translate(self, *given: Any, **how: Any) -> list[Translation]:
            await asyncio.sleep(0.1)
            return await super().translate(*given, **how)

    app = make_app(service(dispatcher=Slow(), limits={"timeout": 0.05, "file_timeout": 60.0}))
    assert ask(app, "POST", "/translate", json=PT_EN).status_code == 504
    assert ask(app, "POST", "/translate_file", data=PT_EN, files={"file": ("a.txt", b"um")}).status_code == 200


def test_a_request_that_waits_too_long_for_the_models_is_told_to_come_back() -> None:
    app = make_app(service(dispatcher=Dispatcher([], 1, Batching(), Metrics())))
    response = ask(app, "POST", "/translate", json=PT_EN, headers={"X-Request-Timeout": "0.05"})
    assert (response.status_code, body(response)) == (503, {"error": "Server is still loading its models"})
    assert response.headers["retry-after"] == "1"


def test_the_log_has_of_probes_those_that_went_wrong() -> None:
    made, stream = service(metrics=True), io.StringIO()
    made.log = Log(stream)
    app = make_app(made)
    for path in ("/health", "/health/live", "/health/ready", "/metrics"):
        assert ask(app, "GET", path).status_code == 200
    assert not stream.getvalue()
    made.ready = False
    assert ask(app, "GET", "/health/ready").status_code == 503
    assert [json.loads(line)["endpoint"] for line in stream.getvalue().splitlines()] == ["/health/ready"]


def test_a_busy_dispatcher_says_when_to_come_back() -> None:
    class Busy(Shouting):
        async def translate(self, *_: Any, **__: Any) -> list[Translation]:
            raise RequestError(503, "Server is busy", {"Retry-After": "7"})

    response = ask(make_app(service(dispatcher=Busy())), "POST", "/translate", json=PT_EN)
    assert (response.status_code, body(response)) == (503, {"error": "Server is busy"})
    assert response.headers["retry-after"] == "7"


def test_keys_are_read_again(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    of = service(api_keys=keys, key_required=True)
    app = make_app(of)

    def statuses() -> list[int]:
        return [
            ask(app, "POST", "/translate", json=PT_EN | {"q": "a", "api_key": key}).status_code
            for key in ("one", "two")
        ]

    assert statuses() == [200, 403]
    keys.write_text("two\n")
    of.access.read_keys()
    assert statuses() == [403, 200]
    keys.write_text("")
    with pytest.raises(DataError):
        of.access.read_keys()
    assert statuses() == [403, 200]
