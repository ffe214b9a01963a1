"""Recorded latencies: a CSV matrix of round-trip times in ms, a header row of names and a named row for each."""

from __future__ import annotations

import csv
from pathlib import Path

from whence.errors import ConfigError

CITIES = Path(__file__).parents[1] / "scenarios" / "wonderproxy.csv"
"""Round-trip times between 217 cities; the file beside it names the source."""


def read_latencies(path: Path) -> tuple[tuple[float, ...], ...]:
    """The matrix, its columns in the order of its rows."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"latencies: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(rows) > 1 and not any(row[-1].strip() for row in rows):  # every line ends in a comma
        rows = [row[:-1] for row in rows]
    header = [name.strip() for name in rows[0][1:]] if rows else []
    if not header or len(rows) != len(header) + 1:
        raise ConfigError(f"latencies: {path} is not a square matrix with a header row and a name in front of each row")
    matrix: dict[str, list[float]] = {}
    for number, row in enumerate(rows[1:], start=2):
        try:
            values = [float(cell) for cell in row[1:]]
        except ValueError as error:
            raise ConfigError(f"latencies: {path}, row {number}: {error}") from None
        if len(values) != len(header) or not all(0 <= v < 1e5 for v in values):
            raise ConfigError(
                f"latencies: {path}, row {number}: want {len(header)} round-trip times from 0 to 100,000 ms"
            )
        matrix[row[0].strip()] = values
    if sorted(matrix) != sorted(header):
        raise ConfigError(f"latencies: {path}: the names of the rows and of the columns differ")
    return tuple(tuple(matrix[name]) for name in header)
