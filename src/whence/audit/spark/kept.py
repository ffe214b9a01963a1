"""What an earlier audit into the same place has judged already, whether it finished or was killed.

A task that has judged its runs leaves a note beside the tables (`tasks/NAME.json`): which runs, each with a digest of
where its rows were read from, the files that it wrote, and the sums of it. The next audit takes over the tasks whose
runs are the same, and judges the others. So new files cost what is in them, and a killed audit goes on where it was.

Files that hold rows of several runs are one group: whether a new file adds to an old run is known when all is read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from whence.audit.spark.findings import Terms
from whence.audit.spark.ingest import Piece
from whence.audit.spark.made import WRITTEN, Made, Planned, Said
from whence.audit.spark.parts import Group
from whence.audit.spark.place import Anywhere, is_local, join, names_in, place_of, read_bytes
from whence.audit.spark.tables import NOTES
from whence.errors import TraceError

Key = tuple[str, str]
"""A run and its cluster."""
ALL: Final[Key] = ("\0all", "")
"""In the place of a run: all of them, where files hold rows of several."""


@cache
def our_version() -> str:
    """A digest of our own code: another version takes nothing over."""
    digest = blake2b(digest_size=8)
    for folder in ("whence.audit.judge", "whence.audit.judge.batch", "whence.audit.spark", "whence.audit.trace"):
        for file in sorted(package_files(folder).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()


@dataclass
class Kept:
    """What is taken over from earlier audits, and what is left to do."""

    groups: dict[Key, Group]
    pieces: int
    """How many there are of all groups."""
    taken: set[Key] = field(default_factory=set)

    def take(self, stage: str, made: Made, out: Anywhere, progress: Callable[[str], None]) -> None:
        """Take over what is unchanged of the tables in `out`, and of what killed audits left there."""
        for place in _places(out, stage):
            for note in _whole_notes(place):
                keys = self._same(note.groups)
                if keys and self.taken.isdisjoint(keys) and _brought(place, stage, note):
                    self.taken.update(keys)
                    made.files[NOTES].append(note.name)
                    for summary in note.said:
                        made.add(summary)
        if self.taken:
            runs = "all" if len(self.taken) == len(self.groups) else f"{len(self.taken):,} of {len(self.groups):,}"
            progress(f"{runs} runs are as in an earlier audit, and are not judged again")

    def finished(self, out: Anywhere) -> bool:
        """The tables in `out` are those that an audit would write now."""
        done = {key for note in _whole_notes(place_of(out)) for key in self._same(note.groups)}
        return done == set(self.groups)

    def _same(self, groups: Sequence[Group]) -> list[Key]:
        """Of which runs these groups are, if all of them are unchanged."""
        keys = [(group.run, group.cluster) for group in groups]
        return keys if all(self.groups.get(key) == group for key, group in zip(keys, groups, strict=True)) else []

    def left(self, pieces: Iterable[Piece]) -> list[Piece]:
        """The pieces that are to be judged."""
        if ALL in self.groups:
            return [] if self.taken else list(pieces)
        return [piece for piece in pieces if piece.of not in self.taken]

    def of(self, pieces: Sequence[Piece]) -> list[Group]:
        """What these pieces are, all of them together; nothing, if they are a part of what can only be judged whole."""
        if ALL in self.groups:
            return [self.groups[ALL]] if len(pieces) == self.pieces else []
        return [self.groups[key] for key in dict.fromkeys(piece.of for piece in pieces) if key is not None]


def kept_of(planned: Planned, terms: Terms, sparse: bool) -> Kept:
    """All that there is to judge, and nothing taken over yet."""
    files = {file.place: file for file in planned.files}
    mixed = any(piece.of is None for piece in planned.pieces)
    digests: dict[Key, Any] = {}
    basis = repr((our_version(), terms, sparse)).encode()
    for piece in planned.pieces:  # in the order in which they are read: of rows that contradict each other one is kept
        key = ALL if mixed else piece.of or ALL
        if key not in digests:
            digests[key] = blake2b(basis, digest_size=8)
        _, size, changed = files[piece.file]
        digests[key].update(repr((piece.file, size, changed, piece.first, piece.end, piece.given)).encode())
    groups = {key: Group(*key, digest.hexdigest()) for key, digest in digests.items()}
    return Kept(groups, len(planned.pieces))


def _places(out: Anywhere, stage: str) -> Iterator[str]:
    place = place_of(out)
    yield place
    if is_local(place):
        for left in sorted(Path(place).glob(".staging-*")):
            if str(left) != stage:
                yield str(left)


class _Note(NamedTuple):
    name: str
    groups: list[Group]
    said: list[str]
    files: list[tuple[str, str]]
    """Directory and name of all files of it, also of the note itself."""


class _Content(msgspec.Struct):
    groups: list[Group]
    said: list[str]


def _whole_notes(place: str) -> Iterator[_Note]:
    """The notes in this place whose files are all there. Directories are listed once: there may be 10^4 notes."""
    there = {table: set(names_in(join(place, table))) for table in (*WRITTEN, "shiviz", NOTES)}
    for name in sorted(there[NOTES]):
        note = _read(place, name)
        if note is not None and all(file in there[table] for table, file in note.files):
            yield note


def _read(place: str, name: str) -> _Note | None:
    """None for half a note of a killed task, or what is none of ours. A note can only name files of the tables: their
    names are looked for in the directories of these."""
    try:
        groups, said = msgspec.structs.astuple(msgspec.json.decode(read_bytes(join(place, NOTES, name)), type=_Content))
        files = [(NOTES, name)]
        for one in (msgspec.json.decode(text, type=Said) for text in said):
            files += [(table, file) for table, (file, _) in one.files.items()]
            files += [("shiviz", file) for file in one.pictures]
            if one.note is not None or not one.files.keys() <= set(WRITTEN):
                return None
    except (OSError, msgspec.DecodeError, TraceError):
        return None
    return _Note(name, groups, said, files)


def _brought(place: str, stage: str, note: _Note) -> bool:
    """Have all files of this note in `stage`; False if one is gone."""
    for table, file in note.files if is_local(place) else ():
        target = Path(stage) / table / file
        target.parent.mkdir(exist_ok=True)
        try:
            os.link(Path(place) / table / file, target)
        except FileExistsError:  # brought before a file of this note was found to be gone from another place
            continue
        except FileNotFoundError:  # an audit beside this one has just published it
            return False
        except OSError:  # a file system without links
            shutil.copy2(Path(place) / table / file, target)
    return True
