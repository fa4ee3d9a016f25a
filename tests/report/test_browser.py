"""The report's page in a real browser: Debian's chromium, driven by chromedriver (W3C WebDriver, plain HTTP)."""

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from repose.report.content import Report
from repose.report.page import write_page

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver"),
]

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
WIDE, NARROW = 1400, 390


class Browser:
    """A browser without a window."""

    def __init__(self, port: int, profile: Path) -> None:
        self.server = f"http://127.0.0.1:{port}/session"
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self.ask("", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def ask(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """A command of the protocol and its answer."""
        data = None if body is None else json.dumps(body).encode()
        whole = self.server + (f"/{self.session}{path}" if hasattr(self, "session") else path)
        request = urllib.request.Request(whole, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def devtools(self, command: str, **params: object) -> Any:
        """A command of the browser's own protocol."""
        return self.ask("/goog/cdp/execute", {"cmd": command, "params": params})

    def show(self, page: Path, width: int, scheme: str, media: str = "screen") -> None:
        """Open a page as wide as `width` CSS pixels."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == NARROW}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", media=media, features=[feature])
        self.ask("/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return self.ask("/execute/sync", {"script": script, "args": []})

    def messages(self) -> list[str]:
        """What the console said since it was last asked."""
        return [entry["message"] for entry in self.ask("/se/log", {"type": "browser"})]

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        image = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(image))

    def close(self) -> None:
        """End the browser."""
        self.ask("", method="DELETE")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    folder = tmp_path_factory.mktemp("chromium")
    with subprocess.Popen([str(DRIVER), "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        line = next(line for line in driver.stdout if "started successfully on port" in line)
        browser = Browser(int(line.split()[-1].rstrip(".")), folder)
        yield browser
        browser.close()
        driver.terminate()


@pytest.fixture
def page(sample: Report, tmp_path: Path) -> Path:
    """The sample report as a file."""
    path = tmp_path / "report.html"
    path.write_text(write_page(sample), encoding="utf-8")
    return path


OVERFLOWING = """
return [...document.querySelectorAll("body *")].filter(element => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < 0) && !element.closest(".scroll, .skip, .unseen");
}).map(element => element.outerHTML.slice(0, 80));
"""


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_the_browser_does_not_complain(
    scheme: str, width: int, page: Path, browser: Browser, tmp_path: Path
) -> None:
    browser.show(page, width, scheme)
    assert browser.messages() == []
    assert browser.run("return document.title") == "A report & more"  # no translation was run as a script
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]
    assert browser.run(OVERFLOWING) == []
    red, green, blue = map(
        int, re.findall(r"\d+", browser.run("return getComputedStyle(document.body).backgroundColor"))
    )
    assert (red + green + blue > 3 * 128) == (scheme == "light")
    drawn = "const svg = document.querySelector('svg'); return [svg.clientWidth, getComputedStyle(svg.lastChild).fill]"
    shown, colour = browser.run(drawn)
    assert shown == (480 if width == WIDE else pytest.approx(NARROW - 32, abs=20))
    assert colour == {"light": "rgb(0, 114, 178)", "dark": "rgb(76, 159, 224)"}[scheme]
    browser.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_a_wide_table_scrolls_below_its_first_column(page: Path, browser: Browser) -> None:
    browser.show(page, NARROW, "light")
    left, before, after = browser.run(
        "const region = document.querySelector('.scroll'), first = region.querySelector('tbody th');"
        "const caption = region.querySelector('caption strong'), x = element => element.getBoundingClientRect().left;"
        "const before = [x(first), x(caption)]; region.scrollLeft = 300;"
        "return [region.scrollLeft, before, [x(first), x(caption)]]"
    )
    assert left == 300
    assert before == after
    assert browser.run("const r = document.querySelector('.scroll'); r.focus(); return document.activeElement === r")


def test_columns_are_sorted_by_their_heads(page: Path, browser: Browser) -> None:
    browser.show(page, WIDE, "light")
    click = (
        "const table = document.querySelector('table'), head = table.tHead.rows[0].cells[1];"
        "head.querySelector('button').click();"
        "return [[...table.tBodies[0].rows].map(row => row.cells[0].textContent), head.getAttribute('aria-sort')]"
    )
    own = ["baseline", "reinforced", "one <run> & no morea", "reinforced-lookaheadab"]
    rising = [own[3], own[0], own[2], own[1]]
    assert browser.run(click) == [rising, "ascending"]
    assert browser.run(click) == [rising[::-1], "descending"]
    assert browser.run(click) == [own, None]


def test_a_mark_leads_to_its_note(page: Path, browser: Browser) -> None:
    browser.show(page, NARROW, "light")
    browser.run("document.querySelector('td a').click()")
    assert browser.run("return document.querySelector(':target').textContent") == "aNot comparable."


def test_on_paper_it_is_light_and_nothing_is_cut_off_by_scrolling(page: Path, browser: Browser) -> None:
    browser.show(page, WIDE, "dark", media="print")
    style = "return getComputedStyle(document.body).backgroundColor"
    assert min(map(int, re.findall(r"\d+", browser.run(style)))) > 200
    assert browser.run("return getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    fill = "return getComputedStyle(document.querySelector('svg').lastChild).fill"
    assert browser.run(fill) == "rgb(0, 114, 178)"
