"""What a check leaves in a folder: verdicts, findings and certificates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whence.audit.history.report import HistoryReport


def certificate(report: HistoryReport) -> dict[str, Any] | None:
    """The commit order that proves the strongest level that holds; None: none does."""
    if report.order is None:
        return None
    return {"level": report.certified, "order": [list(report.history.place(int(t))) for t in report.order]}


def save(folder: Path, name: str, report: HistoryReport, certify: bool) -> list[Path]:
    """Write `name.*` into the folder; returns the files. `findings.jsonl` has a line for each finding of all."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / f"{name}.json"]
    made[0].write_text(json.dumps(report.as_dict(), default=str) + "\n", encoding="utf-8")
    with (folder / "findings.jsonl").open("a", encoding="utf-8") as out:
        for found in report.findings:
            out.write(json.dumps({"file": report.file, **report.finding_dict(found)}, default=str) + "\n")
    proof = certificate(report) if certify else None
    if proof is not None:
        made += [folder / f"{name}.operations.jsonl", folder / f"{name}.certificate.json"]
        with made[-2].open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in report.history.rows())
        made[-1].write_text(json.dumps(proof) + "\n", encoding="utf-8")
    return made
