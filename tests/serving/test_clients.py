"""Client libraries of LibreTranslate work with this server unchanged."""

import json
import os
import shutil
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stub_server import running, service


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(service(limits={"char_limit": 60})) as url:
        yield url


def test_libretranslatepy(address: str) -> None:
    library: Any = pytest.importorskip("libretranslatepy")
    client = library.LibreTranslateAPI(address + "/")
    assert client.translate("olá mundo\nbom dia", "pt", "en") == "OLÁ MUNDO\nBOM DIA"
    assert [one["code"] for one in client.languages()] == ["en", "pt"]
    assert client.detect("o gato viu o cachorro na cozinha")[0]["language"] == "pt"
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.translate("a" * 61, "pt", "en")
    assert refused.value.code == 400
    refused.value.close()


def test_deep_translator(address: str) -> None:
    library: Any = pytest.importorskip("deep_translator")
    client = library.LibreTranslator(
        source="pt", target="en", custom_url=address + "/", api_key="any", use_free_api=False
    )
    assert client.translate("olá & mundo") == "OLÁ & MUNDO"
    assert client.translate_batch(["um", "dois"]) == ["UM", "DOIS"]
    with pytest.raises(library.exceptions.ServerException):
        client.translate("b" * 61)


def node_modules() -> Path | None:
    """A folder with the npm packages `translate` and `libretranslate-ts`, if there is one."""
    places = [os.environ.get("REPOSE_NODE_MODULES", ""), Path(__file__).parents[2] / "node_modules"]
    for place in map(Path, filter(None, places)):
        if all((place / name).is_dir() for name in ("translate", "libretranslate-ts")):
            return place
    return None


SCRIPT = """
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [modules, address] = process.argv.slice(2);
const require = createRequire(pathToFileURL(modules + "/"));
const { default: translate } = await import(pathToFileURL(require.resolve("translate")));
translate.engine = "libre";
translate.url = address + "/translate";
translate.from = "pt";
const libre = require("libretranslate-ts").libreTranslate;
libre.setApiEndpoint(address);
libre.setApiKey("");
const long = await libre.translate("x".repeat(61), "pt", "en");
console.log(JSON.stringify([
  await translate("olá mundo", "en"),
  (await libre.translate("bom dia", "pt", "en")).translatedText,
  (await libre.detect("o gato viu o cachorro na cozinha")).language,
  (await libre.listLanguages()).map((one) => one.code),
  long.error,
]));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_npm_packages(address: str, tmp_path: Path) -> None:
    modules = node_modules()
    if modules is None:
        pytest.skip("needs the npm packages translate and libretranslate-ts: name their folder in REPOSE_NODE_MODULES")
    script = tmp_path / "clients.mjs"
    script.write_text(SCRIPT, encoding="utf-8")
    command = ["node", str(script), str(modules), address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    too_long = "Invalid request: request (61) exceeds text limit (60)"
    assert json.loads(done.stdout) == ["OLÁ MUNDO", "BOM DIA", "pt", ["en", "pt"], too_long]
