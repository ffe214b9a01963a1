"""Every citation in the code leads somewhere: numbered rules, pages of docs and their headings, sections of papers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests" / "core" / "ring").rglob("*.py")])
PAPERS = r"(?:CCC05|CCC11|PCO17|SURVEY|\bEx\d|the paper|the survey)"  # Ex1 .. are examples of the survey

PAGE = re.compile(r"(?<![\w/.\"])((?:[\w-]+/)*[\w-]+\.md)\b(?:,? \(?\"([^\"]+)\")?")
RULES = re.compile(r"\b[Rr]ules? (C?\d+(?:(?:-| to |, | and |, and )C?\d+)*)")
SECTION = re.compile(r"\bsections? \d[\d.]*")
NUMBERED = re.compile(r"^(?:(\d+)\. |\*\*(C\d+)\b)", re.M)


def part(page: str, heading: str) -> str:
    """What stands under a heading of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"{page} has no heading {heading!r}"
    return found[1]


def rules() -> set[str]:
    return {number or council for number, council in NUMBERED.findall(part("ring.md", "The rules"))}


def numbers(cited: str) -> list[str]:
    """`7-9, 12 and 14` -> 7, 8, 9, 12, 14."""
    found: list[str] = []
    for first, last in re.findall(r"(C?\d+)(?:(?:-| to )(C?\d+))?", cited):
        council = "C" if first.startswith("C") else ""
        low = int(first.removeprefix("C"))
        high = int(last.removeprefix("C")) if last else low
        found += [f"{council}{n}" for n in range(low, high + 1)]
    return found


def words(text: str) -> str:
    """A docstring or a comment that goes over several lines, as one line."""
    return re.sub(r"\s*\n\s*(?:# ?)?", " ", text)


def dead_ends(text: str) -> list[str]:
    """The citations of a file that lead nowhere."""
    text, bad = words(text), []
    for page, heading in PAGE.findall(text):
        if (ROOT / page).is_file() and (page.startswith("docs/") or ("/" not in page and page.isupper())):
            known = (ROOT / page).read_text(encoding="utf-8")
            if heading and not re.search(rf"^#+ {re.escape(heading)}$", known, re.M):
                bad.append(f"{page} has no heading {heading!r}")
        elif not (ROOT / page).is_file():
            bad.append(f"there is no page {page}")
    for cited in RULES.findall(text):
        bad += [f"there is no rule {n}" for n in numbers(cited) if n not in rules()]
    for found in SECTION.finditer(text):
        before = text[max(0, found.start() - 120) : found.start()]
        if not re.search(rf"{PAPERS}(?:[^.]|\.\d)*$", before, re.I):
            bad.append(f"{found[0]} of what?")
    return bad


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_citation_leads_somewhere(path: Path) -> None:
    assert dead_ends(path.read_text(encoding="utf-8")) == []


def test_the_rules_are_numbered_without_a_gap() -> None:
    assert {str(n) for n in range(1, 21)} <= rules()


def test_dead_ends_are_found() -> None:
    assert dead_ends("see ring.md and docs/nothing.md") == [
        "there is no page ring.md",
        "there is no page docs/nothing.md",
    ]
    assert dead_ends("rules 19-21 and rule 3") == ["there is no rule 21"]
    assert dead_ends('(docs/ring.md, "The\n    rules") and (docs/ring.md, "No such")') == [
        "docs/ring.md has no heading 'No such'"
    ]
    assert dead_ends("(section 2)") == ["section 2 of what?"]
    assert not dead_ends("CCC11 Theorem 5.1, in section 5; rules 1, 2 and 4 (docs/ring.md)")
