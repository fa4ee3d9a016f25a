"""Check that an exported web page translates as the program does.

Sentences of the phrasebook's test set are translated in headless Chromium, with one file opened from disk. The model
can be `make demo`'s, for example.

    python benchmarks/web.py runs/demo --out results/web-demo.json

In int8 a few sentences differ, because the browser's kernels round differently from the processor's.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import onnxruntime
from playwright.sync_api import Page, sync_playwright

import repose
from records import command_line, record, write
from repose.data import phrasebook
from repose.saved_model.directory import locate, read_config

BEAMS = (1, 4)
_TRANSLATE = """async ([texts, beamSize]) => {
    const found = [];
    for (const text of texts) found.push(await repose.translator.translate(text, { beamSize }));
    return found;
}"""


def opened(tab: Page, page: Path) -> Page:
    """Open the page, wait until it is ready, and go offline."""
    tab.goto(page.as_uri())
    tab.locator("#status", has_text="ready").wait_for(timeout=120_000)
    tab.context.set_offline(True)
    return tab


def measure(run: Path, texts: list[str], precision: str, tab: Page) -> dict[str, Any]:
    """Return the number of equal translations, and the size of the page."""
    with tempfile.TemporaryDirectory() as folder, repose.load(run, engine="onnx", precision=precision) as translator:
        made = repose.export(run, to="web", out=Path(folder) / "page", precision=precision, single_file=True)
        opened(tab, made.folder / "index.html")
        found: dict[str, Any] = {"bytes": dict(made.parts)}
        for beam_size in BEAMS:
            ours = [each.text for each in translator.translate(texts, beam_size=beam_size)]
            theirs = tab.evaluate(_TRANSLATE, [texts, beam_size])
            found[f"same, beam {beam_size}"] = sum(a == b for a, b in zip(ours, theirs, strict=True))
        return found


def main() -> None:
    """Command-line entry point: compare and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("run", type=Path, help="run or model directory, from Portuguese to English")
    parser.add_argument("--sentences", type=int, default=100, help="of the phrasebook's test set, the first ones")
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    texts = [source for source, _ in phrasebook.read()["test"][: args.sentences]]
    with sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=chromium, headless=True, args=options)
        results = {name: measure(args.run, texts, name, browser.new_page()) for name in ("fp32", "int8")}
        versions = {"chromium": browser.version, "onnxruntime": onnxruntime.__version__}
        browser.close()
    content = record(
        "translations of the web page that are the program's, of so many sentences",
        versions={"repose": repose.__version__, **versions},
        model=read_config(locate(args.run)).get("run_id"),
        corpus="phrasebook, test",
        sentences=len(texts),
        results=results,
    )
    print(json.dumps(results, indent=2))
    write(args.out, content)


if __name__ == "__main__":
    main()
