"""Real pages on different workers: the editor of docs/web.md, in Chromium. The judge has the last hop."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.cli.commands import Command, until
from tests.house.imports import PAGES, ROOT
from tests.live.web.served import Served
from tests.ports import free_ports

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("uvicorn", reason="needs uvicorn and websockets")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt install chromium)")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
EDITOR = re.findall(r"```html\n(.*?)```", PAGES[ROOT / "docs" / "web.md"], re.DOTALL)[0]


@pytest.fixture(scope="module")
def yjs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yjs as npm has it."""
    home = tmp_path_factory.mktemp("npm")
    npm = shutil.which("npm")
    if (
        npm is None
        or subprocess.run(
            [npm, "install", "--silent", "--no-audit", "yjs@13"], cwd=home, capture_output=True, timeout=120
        ).returncode
    ):
        pytest.skip("npm cannot install yjs here")
    return home / "node_modules"


@pytest.fixture
def site(tmp_path: Path, yjs: Path) -> Path:
    """The editor of the page, with Yjs from here, and with the workers that its address names."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copytree(yjs, site / "npm")
    modules = {f"lib0/{path.stem}": f"/npm/lib0/{path.name}" for path in (yjs / "lib0").glob("*.js")}
    imports = {"yjs": "/npm/yjs/dist/yjs.mjs", **modules}
    page = EDITOR.replace("https://esm.sh/yjs@13", "yjs")
    page = page.replace('"/rooms/notes"', "JSON.parse(decodeURIComponent(location.hash.slice(1)))")
    page = page.replace("const doc = ", "window.room = room; const doc = ")
    head = f'<link rel="icon" href="data:,"><script type="importmap">{json.dumps({"imports": imports})}</script>'
    (site / "index.html").write_text(page.replace("<title>", head + "<title>"), encoding="utf-8")
    return site


@pytest.fixture
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def test_pages_on_different_workers_end_with_the_same_text(
    browser: Any, start: Callable[..., Command], tmp_path: Path, site: Path
) -> None:
    served = Served(start, tmp_path, site, "--origin", "*")
    a, b, c = served.urls
    said: list[str] = []

    def opened(*urls: str) -> Any:
        page = browser.new_context().new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        home = urls[0].replace("ws:", "http:").replace("rooms/lobby", "index.html")
        page.goto(f"{home}#{quote(json.dumps(urls))}")
        page.wait_for_function("!document.getElementById('text').disabled")
        return page

    pages = [opened(a, b, c), opened(b, c), opened(c, b)]
    first, second, slow = pages
    slow.context.new_cdp_session(slow).send("Emulation.setCPUThrottlingRate", {"rate": 20})

    def typed(page: Any, text: str) -> None:
        page.focus("#text")
        page.keyboard.press("Control+End")
        page.keyboard.type(text)

    def texts() -> list[str]:
        return [page.input_value("#text") for page in pages]

    for n in range(5):
        typed(first, f"one{n} ")
        typed(second, f"two{n} ")
    served.kill(0)
    for n in range(5, 8):
        typed(first, f"one{n} ")
        typed(second, f"two{n} ")
    second.context.set_offline(True)
    second.wait_for_function("window.room.state === 'offline'")
    typed(second, "offline ")
    typed(first, "meanwhile ")
    assert second.evaluate("window.room.unsent") >= 0 and "meanwhile" not in second.input_value("#text")
    second.context.set_offline(False)
    until(lambda: len(set(texts())) == 1 and pages_done(pages), "all pages have the same text")
    [text] = set(texts())
    letters = sum(len(f"one{n}two{n}") for n in range(8)) + len("offlinemeanwhile")
    assert len(text.replace(" ", "")) == letters, text
    assert first.evaluate("window.room.worker") != served.members[0]
    for page in pages:
        page.evaluate("window.room.close()")
    given = served.judged(3)
    assert len(given) == 3 and len(set(given.values())) == 1, given
    assert said == []


def pages_done(pages: list[Any]) -> bool:
    """Everything has its receipt."""
    return all(page.evaluate("window.room.unsent === 0 && window.room.state === 'open'") for page in pages)


def test_the_demo_survives_its_buttons(browser: Any, start: Callable[..., Command], tmp_path: Path) -> None:
    [port] = free_ports(1)
    demo = start("demo", "--live", "--out", tmp_path / "demo", "--http", f"127.0.0.1:{port}")
    until(lambda: demo.heard("look at it"), "the demo has started")
    said: list[str] = []
    page = browser.new_context(viewport={"width": 360, "height": 800}, color_scheme="dark").new_page()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{port}/")
    page.wait_for_function("Array.isArray(window.people) && people.every(({ room }) => room.state === 'open')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Go offline", "the keyboard reaches everything"
    areas = page.locator("textarea")
    areas.nth(0).focus()
    page.keyboard.type("ann ")
    page.click("#lose")
    page.click("#kill")
    page.locator(".off").nth(2).click()
    areas.nth(2).focus()
    page.keyboard.type("cid ")
    areas.nth(1).focus()
    page.keyboard.press("Control+End")
    page.keyboard.type("bob ")
    page.locator("input").nth(1).fill("and?")
    page.keyboard.press("Enter")
    page.locator(".off").nth(2).click()
    until(lambda: all(sorted(area.input_value().split()) == ["ann", "bob", "cid"] for area in areas.all()), "all agree")
    until(lambda: len({area.input_value() for area in areas.all()}) == 1, "on one text")
    until(lambda: page.locator(".said", has_text="and?").count() == 3, "all heard it")
    until(lambda: "all in causal order" in page.inner_text("#verdict"), "the judge says so")
    assert said == [] and demo.end(signal.SIGINT) in (0, 130)
