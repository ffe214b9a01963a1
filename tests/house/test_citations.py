"""Every citation leads somewhere: pages and headings, modules and lines, paths, rules, sections of papers."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.house.imports import CODE, PAGES, ROOT, parsed

DOCS = ROOT / "docs"
RULED = ("src", "tests/core/ring")
"""Where "rule 7" is a rule of docs/ring.md, and "section 3" one of a paper."""
PAPERS = r"(?:CCC05|CCC11|PCO17|SURVEY|\bEx\d|the paper|the survey)"  # Ex1 .. are examples of the survey

PAGE = re.compile(r"(?<![\w/.\"-])([\w/-]+\.md)\b(?:,? \(?\"([^\"]+)\")?")
MODULE = re.compile(r"(?<![\w/.*<>{}\"-])((?:[\w-]+/)*[\w-]+\.py)\b(?::(\d+))?")
PATH = re.compile(r"(?<![\w/.*{}-])((?:src|tests|docs|bench|soak|scorecard|examples|deploy|proofs)/[\w/.@-]*\w)")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
RULE_OF = re.compile(r"((?:[\w-]+/)+[\w-]+\.py)`?, rule (\d+)")
RULES = re.compile(r"\b[Rr]ules? (C?\d+(?:(?:-| to |, | and |, and )C?\d+)*)")
SECTION = re.compile(r"\bsections? \d[\d.]*")
NUMBERED = re.compile(r"^(?:(\d+)\. |\*\*(C\d+)\b)", re.M)
NOT_OURS = {"anchor.py", "room_app.py", "job.py", "stock.py", "till.py"}
"""Files that the reader of a page is to write."""
CITES = re.compile(rf"\.md\b|\.py\b|\b[Rr]ules? C?\d|\bsections? \d|{PATH.pattern}")


@cache
def rules() -> frozenset[str]:
    found = re.search(r"^## The rules\n(.*?)(?=^## |\Z)", PAGES[DOCS / "ring.md"], re.M | re.S)
    assert found, "docs/ring.md has no heading 'The rules'"
    return frozenset(number or council for number, council in NUMBERED.findall(found[1]))


@cache
def headings(page: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^#+ (.*)$", PAGES[page], re.M))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The headings as a link names them."""
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings(page))


@cache
def modules() -> frozenset[str]:
    """Every ending of every path of a module: `trace/read.py` and `read.py` are found, too."""
    files = [*CODE, *DOCS.rglob("*.py"), *(ROOT / "proofs").rglob("*.py")]
    parts = [path.relative_to(ROOT).parts for path in files]
    return frozenset({"/".join(each[n:]) for each in parts for n in range(len(each))} | NOT_OURS)


def numbers(cited: str) -> list[str]:
    """`7-9, 12 and 14` -> 7, 8, 9, 12, 14."""
    found: list[str] = []
    for first, last in re.findall(r"(C?\d+)(?:(?:-| to )(C?\d+))?", cited):
        council = "C" if first.startswith("C") else ""
        low = int(first.removeprefix("C"))
        high = int(last.removeprefix("C")) if last else low
        found += [f"{council}{n}" for n in range(low, high + 1)]
    return found


def prose(code: str) -> str:
    """The comments and docstrings of a module, each as one line."""
    found = re.findall(r"(?:^|\s)# ?(.*)$", code, re.M)
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.append(node.value.value)
    return "\n".join(words(each) for each in found)


def words(text: str) -> str:
    """A docstring or a comment that goes over several lines, as one line."""
    return re.sub(r"\s*\n\s*(?:# ?)?", " ", text)


def dead_pages(text: str) -> list[str]:
    bad = []
    for page, heading in PAGE.findall(text):
        if not (ROOT / page).is_file():
            bad.append(f"there is no page {page}")
        elif heading and heading not in headings(ROOT / page):
            bad.append(f"{page} has no heading {heading!r}")
    return bad


def dead_modules(text: str) -> list[str]:
    """Modules that are not there, and lines and numbered rules that are not in them."""
    bad = []
    for module, line in MODULE.findall(text):
        if module not in modules():
            bad.append(f"there is no module {module}")
        elif line and int(line) > max(len(code.splitlines()) for code in sources(module)):
            bad.append(f"{module} has no line {line}")
    for module, number in RULE_OF.findall(text):
        if (there := sources(module)) and not any(f"\n{number}. " in code for code in there):
            bad.append(f"{module} has no rule {number}")
    return bad


def sources(module: str) -> list[str]:
    return [code for path, code in CODE.items() if str(path).endswith(f"/{module}")]


def dead_paths(text: str) -> list[str]:
    return [f"there is no {path}" for path in PATH.findall(text) if not (ROOT / path).exists()]


def dead_links(page: Path, text: str) -> list[str]:
    bad = []
    for path, anchor in LINK.findall(text):
        there = page.parent / path if path else page
        if not there.exists():
            bad.append(f"there is no {path}")
        elif anchor and anchor not in anchors(there.resolve()):
            bad.append(f"{path} has no heading #{anchor}")
    return bad


def dead_rules(text: str) -> list[str]:
    bad = [f"there is no rule {n}" for cited in RULES.findall(text) for n in numbers(cited) if n not in rules()]
    for found in SECTION.finditer(text):
        before = text[max(0, found.start() - 120) : found.start()]
        if not re.search(rf"{PAPERS}(?:[^.]|\.\d)*$", before, re.I):
            bad.append(f"{found[0]} of what?")
    return bad


def test_the_code_cites_what_is_there() -> None:
    bad = []
    for path, code in CODE.items():
        text = prose(code) if CITES.search(code) else ""
        ruled = any(path.is_relative_to(ROOT / folder) for folder in RULED)
        dead = dead_pages(text) + dead_modules(text) + dead_paths(text) + (dead_rules(text) if ruled else [])
        bad += [f"{path.relative_to(ROOT)}: {each}" for each in dead if path != Path(__file__)]
    assert bad == []


def test_the_pages_cite_what_is_there() -> None:
    bad = []
    for page, text in PAGES.items():
        dead = dead_modules(text) + dead_paths(text) + dead_links(page, text)
        bad += [f"{page.relative_to(ROOT)}: {each}" for each in dead]
    assert bad == []


def test_dead_ends_are_found() -> None:
    assert dead_pages("see ring.md and docs/nothing.md") == [
        "there is no page ring.md",
        "there is no page docs/nothing.md",
    ]
    assert dead_pages('(docs/ring.md, "The rules") and (docs/ring.md, "No such")') == [
        "docs/ring.md has no heading 'No such'"
    ]
    assert dead_modules("`order/nothing.py`, trace/read.py, read.py") == ["there is no module order/nothing.py"]
    assert dead_modules("`core/order/survey/base.py`, rule 99") == ["core/order/survey/base.py has no rule 99"]
    assert dead_modules("member.py:1, `core/member.py:99999`") == ["core/member.py has no line 99999"]
    assert dead_paths("`src/whence/core`, tests/nothing.py, deploy/no") == [
        "there is no tests/nothing.py",
        "there is no deploy/no",
    ]
    assert dead_links(ROOT / "README.md", "[a](docs/no.md), [b](docs/ring.md#no), [c](docs/ring.md#the-rules)") == [
        "there is no docs/no.md",
        "docs/ring.md has no heading #no",
    ]
    assert dead_rules("rules 9-10, C1 and rule 99") == ["there is no rule 99"]
    assert dead_rules("(section 2)") == ["section 2 of what?"]
    assert not dead_rules("CCC11 Theorem 5.1, in section 5; rules 1, 2 and 4 (docs/ring.md)")
    assert prose('"""A\n    page."""\nx = 1  # why\n"docs/none.md"') == "why\nA page.\ndocs/none.md"
