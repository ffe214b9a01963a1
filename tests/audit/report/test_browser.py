"""The page in a real browser: Chromium, driven by Playwright. Skipped where there is no Chromium."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.audit.report.traces import TRIANGLE
from whence.audit.report import RunVerdicts, gather, write
from whence.audit.trace import Row

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt install chromium)"),
]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page; at the end nothing may have been complained about in the console."""
    said: list[str] = []
    contexts = []

    def open_page(path: Path, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture
def triangle(tmp_path: Path) -> Path:
    path = tmp_path / "triangle.html"
    write(gather(TRIANGLE, title="triangle", about="three members"), path)
    return path


def test_an_event_lights_up_its_past_and_future(opened: Any, triangle: Path) -> None:
    page = opened(triangle)
    page.focus("#diagram")
    page.keyboard.press("n")
    assert "q@a#1: published by a#1" in page.inner_text("#told")
    assert "0 events in its past, 1 in its future, 0 concurrent" in page.inner_text("#told")
    page.keyboard.press("n")
    assert "1 event in its past, 0 in its future" in page.inner_text("#told")
    page.keyboard.press("Escape")
    assert page.inner_text("#told") == "No event is chosen."


def test_a_run_of_a_few_nanoseconds_fills_the_picture(opened: Any, tmp_path: Path) -> None:
    short = [
        Row(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "t_ns": row.t_ns // 10**6}) for row in TRIANGLE
    ]
    write(gather(short, title="short", about="8 ns"), tmp_path / "short.html")
    page = opened(tmp_path / "short.html")
    dark = """() => { const c = document.getElementById("diagram");
      const d = c.getContext("2d").getImageData(0, 30, c.width, 60).data;
      const xs = []; for (let i = 0; i < d.length; i += 4) if (d[i] < 80 && d[i + 1] < 130) xs.push(i / 4 % c.width);
      return (Math.max(...xs) - Math.min(...xs)) / c.width }"""
    assert page.evaluate(dark) > 0.5
    assert "in 8 ns" in page.inner_text(".said") and "ns" in page.inner_html("body").partition("Latency")[2]


def test_a_violation_is_told_in_words(opened: Any, triangle: Path) -> None:
    page = opened(triangle)
    page.focus("#diagram")
    page.keyboard.press("v")
    assert page.inner_text("#told").endswith("delivered answer@b#1 first, and only then this, its cause: inverted.")
    assert page.locator("#chosen tr").count() == 4  # a head, and three members
    page.keyboard.press("v")  # violations first, then what only looks like one
    assert "c#1 delivered this without q@a#1, which is in its past. It asked for causal order, which allows that." in (
        page.inner_text("#told")
    )
    page.fill("#find", "answer@b#1")
    page.keyboard.press("Enter")
    assert "answer@b#1: published by b#1" in page.inner_text("#told")


def test_a_finding_shows_itself_in_the_diagram(opened: Any, triangle: Path) -> None:
    page = opened(triangle)
    page.click("#findings .show")
    said = page.inner_text("#told")
    assert said.startswith("c#1 delivered answer@b#1 and then q@a#1"), "the finding itself"
    assert "q@a#1: published by a#1" in said, "and the event that came too late"
    assert page.evaluate("document.activeElement.id") == "diagram"


def test_a_click_finds_the_event_under_it(opened: Any, triangle: Path) -> None:
    page = opened(triangle)
    page.click("#all")
    box = page.locator("#diagram").bounding_box()
    found = set()
    for dx in range(40, int(box["width"]), 12):  # along the first lane
        page.mouse.click(box["x"] + dx, box["y"] + 24 + 11)
        found.add(page.inner_text("#told").partition(":")[0])
    assert {"q@a#1", "answer@b#1"} <= found


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen(opened: Any, triangle: Path, width: int, scheme: str) -> None:
    page = opened(triangle, viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
    assert dark == (scheme == "dark")


def test_a_finger_reaches_every_lane(opened: Any, tmp_path: Path) -> None:
    """A finger that moves up or down moves the page, so all members have to be there at once."""
    write(gather(big(40, 60), RunVerdicts(), title="many", about="-"), tmp_path / "many.html")
    page = opened(tmp_path / "many.html", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert page.locator("#diagram").bounding_box()["height"] > 60 * 14


def test_screen_readers_have_something_to_read(opened: Any, triangle: Path) -> None:
    page = opened(triangle)
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, input, canvas, svg")].filter((e) =>
        !(e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label"))).length"""
    )
    assert unnamed == 0
    assert page.locator("h1").count() == 1
    assert page.get_attribute("#told", "aria-live") == "polite"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_an_id_that_is_used_again_does_not_turn_time_around(opened: Any, tmp_path: Path) -> None:
    rows = [*TRIANGLE, Row("r", "c", "a#1", 4, 20_000_000, "publish", event="q@a#1", origin="a#1")]
    path = tmp_path / "again.html"
    write(gather(rows, RunVerdicts(), title="again", about="-"), path)
    page = opened(path)
    page.focus("#diagram")
    page.keyboard.press("n")
    assert "q@a#1: published by a#1 at 1.0 ms. 0 events in its past, 1 in its future" in page.inner_text("#told")


def big(events: int, members: int) -> list[Row]:
    """A long run: everybody delivers everything after some milliseconds."""
    rng = random.Random(1)
    rows: list[list[tuple[int, str, str]]] = [[] for _ in range(members)]
    for n in range(events):
        origin, t = rng.randrange(5), n * 3_000_000
        event = f"{origin}:0.0.1:{n}@m{origin}#1"
        rows[origin] += [(t, "publish", event), (t, "deliver", event)]
        for m in range(members):
            if m != origin:
                rows[m].append((t + rng.randrange(1, 40) * 1_000_000, "deliver", event))
    return [
        Row("r", "c", f"m{m}#1", lseq, t, kind, event=event, origin=event.partition("@")[2])
        for m, mine in enumerate(rows)
        for lseq, (t, kind, event) in enumerate(sorted(mine))
    ]


def test_a_hundred_thousand_steps_are_drawn_panned_and_searched(opened: Any, tmp_path: Path) -> None:
    rows = big(4_000, 25)
    write(gather(rows, RunVerdicts(), title="big", about="-"), tmp_path / "big.html")
    page = opened(tmp_path / "big.html")
    assert page.evaluate("JSON.parse(document.getElementById('data').textContent).steps") == 104_000
    frames = page.evaluate(
        """async () => {
            const canvas = document.getElementById("diagram"), took = [];
            for (let i = 0; i < 30; i++) {
                const turn = { deltaY: i < 15 ? -120 : 120, clientX: 600, clientY: 300 };
                canvas.dispatchEvent(new WheelEvent("wheel", turn));
                const began = performance.now();
                await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                took.push(performance.now() - began);
            }
            return took.sort((a, b) => a - b);
        }"""
    )
    print(f"two frames of 104,000 steps: median {frames[15]:.0f} ms, worst {frames[-1]:.0f} ms")  # told, not asserted
    page.focus("#diagram")
    page.keyboard.press("p")
    assert "3999@" in page.inner_text("#told") and " 0 in its future" in page.inner_text("#told")
    drawn = page.evaluate(
        """() => {
            const canvas = document.getElementById("diagram"), seen = new Set();
            const d = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            for (let i = 0; i < d.length; i += 4) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]);
            return seen.size;
        }"""
    )
    assert drawn > 10
