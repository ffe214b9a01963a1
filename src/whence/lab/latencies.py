"""Recorded latencies: a CSV matrix of round-trip times in ms, a header row of names and a named row for each. Pure but
for reading the file."""

from __future__ import annotations

import csv
from pathlib import Path

from whence.errors import ConfigError

CITIES = Path(__file__).parent / "scenarios" / "wonderproxy.csv"
"""Round-trip times between 217 cities; the file beside it names the source."""
LONGEST_MS = 100_000


def read_matrix(path: Path) -> dict[str, dict[str, float]]:
    """Name -> name -> round-trip time in ms."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            f"latencies: cannot read {path}: {getattr(error, 'strerror', None) or error}; give a CSV matrix of "
            "round-trip times in ms (a scenario: network.file, or --latencies on the command line)"
        ) from None
    if len(rows) > 1 and not any(row[-1].strip() for row in rows):  # every line ends in a comma
        rows = [row[:-1] for row in rows]
    header = [name.strip() for name in rows[0][1:]] if rows else []
    if not header or len(rows) < 2:
        raise ConfigError(f"latencies: {path} is not a matrix: it needs a header row and a named row for each name")
    matrix: dict[str, dict[str, float]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header) + 1:
            raise ConfigError(f"latencies: {path}, row {number} has {len(row) - 1} values, the header {len(header)}")
        try:
            values = [float(cell) for cell in row[1:]]
        except ValueError as error:
            raise ConfigError(f"latencies: {path}, row {number}: {error}") from None
        if not all(0 <= v < LONGEST_MS for v in values):
            raise ConfigError(f"latencies: {path}, row {number}: want round-trip times from 0 to {LONGEST_MS:,} ms")
        matrix[row[0].strip()] = dict(zip(header, values, strict=True))
    if sorted(matrix) != sorted(header):
        raise ConfigError(f"latencies: {path}: the names of the rows and of the columns differ")
    return matrix


def read_latencies(path: Path) -> tuple[tuple[float, ...], ...]:
    """The matrix without names, its columns in the order of its rows."""
    matrix = read_matrix(path)
    return tuple(tuple(row[name] for name in matrix) for row in matrix.values())
