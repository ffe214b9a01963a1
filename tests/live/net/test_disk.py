"""The journal: killed at every point, cut at every byte, on a full disk, damaged, in use; a model says what must be
there."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.live.net.disks import Killed, KillingFiles, Life, World, bury, frame, seqs
from whence.core.clock import Frame
from whence.core.ports import Deliver
from whence.errors import CorruptJournal, DiskError, JournalInUse, UsageError
from whence.live.net import disk
from whence.live.net.disk import MAGIC, Files, Journal, Saved, _check


def test_killed_at_every_single_step(tmp_path: Path) -> None:
    """One scenario, killed after 1, 2, 3, ... operations, then continued by an undisturbed life."""
    deaths = 0
    for after in range(200):
        world, directory = World(), tmp_path / str(after)
        with Journal(directory, "c", rotate_bytes=400) as journal:
            world.live(journal, random.Random(1), 10)
        journal = Journal(directory, "c", rotate_bytes=400, files=KillingFiles(after, random.Random(after)))
        try:
            world.live(journal, random.Random(2), 40)
        except Killed:
            deaths += 1
        bury(journal)
        for seed in (3, 4):
            with Journal(directory, "c", rotate_bytes=400) as journal:
                world.live(journal, random.Random(seed), 10)
        if deaths <= after:
            break
    assert 40 < deaths < 200, "the scenario was not longer than the kills"


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """A log that ends anywhere is read up to its last whole record."""
    with Journal(tmp_path, "c") as journal:
        life = Life(journal)
        first, ends = journal.first, []
        for i in range(1, 6):
            life.batch(i)
            life.process(1)
            ends.append((journal._size, life.delivered, list(life.waiting)))
    (path,) = tmp_path.glob("*.journal")
    data = path.read_bytes()
    assert 0 < first < ends[0][0]
    for n in range(first, len(data) + 1):
        path.write_bytes(data[:n])
        with Journal(tmp_path, "c") as journal:
            saved = journal.load()
            past = [e for e in ends if e[0] <= n]
            assert int(saved.checkpoint or b"0") >= (past[-1][1] if past else 0)
            if past and past[-1][0] == n:
                assert (seqs(saved), saved.warning) == (past[-1][2], "")
            assert saved.done <= 5 and seqs(saved) == list(range(saved.done + 1, int(saved.checkpoint or b"0") + 1))
    for n in range(first):
        path.write_bytes(data[:n])
        with Journal(tmp_path, "c") as journal, pytest.raises(CorruptJournal, match="No crash does that"):
            journal.load()


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    """Never a wrong state: refused, or the end cut off where a crash could have cut it."""
    with Journal(tmp_path, "c") as journal:
        life = Life(journal)
        states = {(b"0", ())}
        for i in range(1, 5):
            life.batch(i)
            last = journal._size
            states.add((b"%d" % life.delivered, tuple(life.waiting)))
        life.batch(1)
        states.add((b"%d" % life.delivered, tuple(life.waiting)))
    (path,) = tmp_path.glob("*.journal")
    data = path.read_bytes()
    refused = 0
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        with Journal(tmp_path, "c") as journal:
            try:
                saved = journal.load()
            except CorruptJournal as error:
                assert str(path) in str(error)
                refused += 1
                continue
            assert at >= last and "cut off" in saved.warning, f"byte {at} of {len(data)}: {saved}"
            assert (saved.checkpoint or b"0", tuple(seqs(saved))) in states
    assert refused == last


def test_doubled_swapped_and_foreign_records_are_noticed(tmp_path: Path) -> None:
    with Journal(tmp_path, "c") as journal:
        life = Life(journal)
        cuts = [journal._size]
        for _ in range(4):
            life.batch(2)
            cuts.append(journal._size)
    (path,) = tmp_path.glob("*.journal")
    data = path.read_bytes()
    parts = [data[: cuts[0]], *(data[a:b] for a, b in itertools.pairwise(cuts))]
    for order in ([0, 1, 1, 2, 3, 4], [0, 2, 1, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4, 4]):
        path.write_bytes(b"".join(parts[i] for i in order))
        with Journal(tmp_path, "c") as journal, pytest.raises(CorruptJournal):
            journal.load()
    with Journal(tmp_path / "other", "c") as journal:
        Life(journal).batch(2)
    (other,) = (tmp_path / "other").glob("*.journal")
    stray = other.read_bytes()[-60:]
    path.write_bytes(data + stray)  # not of this log: no more than rubbish at its end
    with Journal(tmp_path, "c") as journal:
        assert "cut off" in journal.load().warning and journal.load().checkpoint == b"8"


def test_a_payload_cannot_pass_for_a_record(tmp_path: Path) -> None:
    """Somebody publishes what looks like a record; then a crash tears the record it is in."""
    with Journal(tmp_path / "source", "c") as journal:
        Life(journal).batch(1)
    (source,) = (tmp_path / "source").glob("*.journal")
    trap = Frame.of(0, 1, 1, "a#1", ((1, 0),), [source.read_bytes() * 3])
    with Journal(tmp_path, "c") as journal:
        Life(journal)
        journal.save(b"1", [Deliver(trap)])
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes()[:-1])
    with Journal(tmp_path, "c") as journal:
        assert journal.load().checkpoint is None and "cut off" in journal.load().warning


def test_a_torn_record_is_found_in_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody publishes what begins like records, over and over, each as long as what is left."""
    with Journal(tmp_path / "source", "c") as journal:
        Life(journal).batch(1)
    (source,) = (tmp_path / "source").glob("*.journal")
    begins = source.read_bytes()[len(MAGIC) + 4 :][:4]
    rng, size = random.Random(1), 1 << 18
    heads = b"".join(
        begins + struct.pack(">I", max(0, size - at - 64)) + rng.randbytes(8) for at in range(16, size, 16)
    )
    with Journal(tmp_path, "c") as journal:
        Life(journal)
        journal.save(b"1", [Deliver(Frame.of(0, 1, 1, "a#1", ((1, 0),), [heads]))])
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes()[:-1])
    checked = 0

    def check(data: bytes, salt: bytes) -> int:
        nonlocal checked
        checked += len(data)
        return _check(data, salt)

    monkeypatch.setattr(disk, "_check", check)
    with Journal(tmp_path, "c") as journal:
        assert "cut off" in journal.load().warning
    assert checked < 2 * size


# -- power: what was not synced may be gone ---------------------------------------------------------------------


class Disk(Files):
    """A disk in memory that loses its power: of each file only what was synced is certain, and a rename only when the
    directory was synced."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files: dict[int, bytearray] = {}
        self.synced: dict[int, int] = {}
        self.names_now: dict[str, int] = {}
        self.names_synced: list[dict[str, int]] = [{}]  # any of these may be found
        self.left = 10**9

    def _tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def names(self, directory: Path) -> list[str]:
        return sorted(self.names_now)

    def read(self, path: Path) -> bytes:
        return bytes(self.files[self.names_now[path.name]])

    def create(self, path: Path) -> int:
        self._tick()
        fd = len(self.files) + 1000
        self.files[fd], self.synced[fd] = bytearray(), 0
        self._name({**self.names_now, path.name: fd})
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        self._tick()
        n = self.rng.randint(1, len(data))  # short writes are normal
        self.files[fd] += data[:n]
        return n

    def sync(self, fd: int) -> None:
        self._tick()
        self.synced[fd] = len(self.files[fd])

    def rename(self, old: Path, new: Path) -> None:
        self._tick()
        names = dict(self.names_now)
        names[new.name] = names.pop(old.name)
        self._name(names)

    def unlink(self, path: Path) -> None:
        self._tick()
        self._name({name: fd for name, fd in self.names_now.items() if name != path.name})

    def sync_directory(self, directory: Path) -> None:
        self._tick()
        self.names_synced = [self.names_now]

    def close(self, fd: int) -> None:
        if fd < 1000:
            super().close(fd)

    def _name(self, names: dict[str, int]) -> None:
        self.names_now = names
        self.names_synced.append(names)

    def power_fails(self) -> None:
        self.names_now = self.rng.choice(self.names_synced)
        self.names_synced = [self.names_now]
        for fd, data in self.files.items():
            kept = self.rng.randint(self.synced[fd], len(data))
            torn = bytes(self.rng.choice((0, 255)) for _ in range(self.rng.randint(0, len(data) - kept)))
            self.files[fd] = data[:kept] + torn
            self.synced[fd] = len(self.files[fd])
        self.left = 10**9


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_the_power_fails_again_and_again(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """What `save` has synced is there; of what the application processed since then some may be shown again."""
    rng = random.Random(seed)
    disk, world, directory = Disk(rng), World(), tmp_path_factory.mktemp("j")
    for _ in range(8):
        disk.left = rng.randint(1, 60)
        journal = Journal(directory, "c", rotate_bytes=500, files=disk)
        with contextlib.suppress(Killed):
            world.live(journal, rng, 30)
        Files.close(disk, journal._lock or 0)
        disk.power_fails()
        world.done = 0  # `processed` does not wait for the disk
    journal = Journal(directory, "c", files=disk)
    life = Life(journal)
    assert life.boot > max(world.boots, default=0) and life.delivered >= world.saved_to
    assert life.waiting == list(range(life.delivered - len(life.waiting) + 1, life.delivered + 1))
    journal.close()


# -- what disks and people do -----------------------------------------------------------------------------------


class FullFiles(Files):
    """A disk with room for so many bytes, then for none, until somebody makes some."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: memoryview) -> int:
        n = min(len(data), self.room)
        if not n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= n
        return super().write(fd, data[:n])


def test_a_full_disk_costs_time_not_data(tmp_path: Path) -> None:
    for room in range(100, 900, 23):
        directory = tmp_path / str(room)
        files = FullFiles(10**6)
        with Journal(directory, "c", files=files) as journal:
            life = Life(journal)
            files.room = room
            with pytest.raises(DiskError, match="No space left on device") as failure:
                while True:
                    life.batch(3)
            assert str(directory) in str(failure.value) and journal.rotates
            with pytest.raises(DiskError):
                journal.sync()
            with Journal(directory / "copy", "c") as copy:  # killed now, it would find what `save` returned for
                for path in directory.glob("*.journal"):
                    (directory / "copy" / path.name).write_bytes(path.read_bytes())
                found = copy.load()
                assert int(found.checkpoint or b"0") in (life.delivered, life.delivered + 3)
                assert seqs(found) == list(range(1, int(found.checkpoint or b"0") + 1))
            files.room = 10**6
            journal.sync()
            assert not journal.rotates
            life.delivered += 3  # the batch that failed is remembered
            life.waiting += range(life.delivered - 2, life.delivered + 1)
            life.batch(1)
        with Journal(directory, "c") as journal:
            assert seqs(journal.load()) == list(range(1, life.delivered + 1)) and not journal.load().warning


def test_a_sync_that_fails_is_not_tried_again_on_the_same_file(tmp_path: Path) -> None:
    """After a failed fsync the kernel may have dropped the pages: only a new file is worth anything."""

    class Sick(Files):
        sick = False

        def sync(self, fd: int) -> None:
            if self.sick:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(fd)

    files = Sick()
    with Journal(tmp_path, "c", files=files) as journal:
        life = Life(journal)
        life.batch(1)
        before = set(tmp_path.glob("*.journal"))
        files.sick = True
        with pytest.raises(DiskError, match="Input/output error"):
            life.batch(1)
        files.sick = False
        journal.sync()
        assert set(tmp_path.glob("*.journal")) - before
    with Journal(tmp_path, "c") as journal:
        assert journal.load().checkpoint == b"2"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path, "c"):
        with pytest.raises(JournalInUse, match=f"in use by process {os.getpid()}"):
            Journal(tmp_path, "c")
        code = f"from whence.live.net.disk import Journal; Journal({str(tmp_path)!r}, 'c')"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert other.returncode == 1 and f"JournalInUse: {tmp_path} is in use by process {os.getpid()}" in other.stderr
    Journal(tmp_path, "c").close()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        f"import os; from whence.live.net.disk import Journal; j = Journal({str(tmp_path)!r}, 'c'); j.load();"
        "j.next_boot(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    with Journal(tmp_path, "c") as journal:
        assert journal.load().boot == 1


def test_files_are_private_and_few(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with Journal(tmp_path / "a" / "b", "c", rotate_bytes=200) as journal:
            life = Life(journal)
            for _ in range(100):
                life.batch(2)
                life.process(2)
            assert int(max(path.stem for path in (tmp_path / "a" / "b").glob("*.journal"))[-8:]) > 3
    finally:
        os.umask(old)
    directory = tmp_path / "a" / "b"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in directory.iterdir()} == {0o600}
    assert len(list(directory.iterdir())) == 3  # the lock, this generation and the one before
    assert sum(p.stat().st_size for p in directory.iterdir()) < 60_000  # all 100 frames are kept for others


def no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)


def a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("x")


@pytest.mark.parametrize("harm", [no_permission, a_file_in_the_way])
def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    if harm is no_permission and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    harm(tmp_path)
    with pytest.raises(DiskError, match=f"cannot use {tmp_path / 'j'}"):
        Journal(tmp_path / "j", "c")


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "0000000000000001-00000001.journal").mkdir()
    with Journal(tmp_path, "c") as journal, pytest.raises(DiskError, match="Is a directory"):
        journal.load()


def test_a_directory_belongs_to_one_cluster(tmp_path: Path) -> None:
    with Journal(tmp_path, "lobby") as journal:
        Life(journal)
    with Journal(tmp_path, "kitchen") as journal, pytest.raises(UsageError, match="belongs to the cluster 'lobby'"):
        journal.load()


def test_boots_only_rise(tmp_path: Path) -> None:
    for at_least, boot in ((0, 1), (0, 2), (1000, 1000), (500, 1001), (1002, 1002)):
        with Journal(tmp_path, "c") as journal:
            journal.load()
            assert journal.next_boot(at_least) == boot


def test_the_state_of_an_application_comes_back_with_what_followed(tmp_path: Path) -> None:
    with Journal(tmp_path, "c") as journal:
        life = Life(journal)
        life.batch(4)
        journal.processed(3, state=b"sum of 1..3")
        life.batch(2)
    with Journal(tmp_path, "c") as journal:
        saved = journal.load()
        assert (saved.state, seqs(saved), saved.done) == (b"sum of 1..3", [4, 5, 6], 3)


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    one, two = frame(1, 3), Frame.of(2, 7, 1, "b#9", ((0, 0),) * 3, [b"", bytes(5000)], ((1, 2, 3),), (0, 1, 2))
    with Journal(tmp_path, "c") as journal:
        journal.load()
        journal.next_boot()
        journal.save(b"checkpoint", [Deliver(one), Deliver(two, True)])
        journal.processed(4)
    with Journal(tmp_path, "c") as journal:
        saved = journal.load()
        assert saved == Saved(1, b"checkpoint", None, (Deliver(two, True),), 1, 4, kept=(one, two))
        assert journal.load() is saved


def test_misuse_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "c")
    with pytest.raises(UsageError, match="first load"):
        journal.save(b"")
    life = Life(journal)
    life.batch(2)
    for n in (-1, 3):
        with pytest.raises(UsageError, match=f"{n} events processed, but only 2"):
            journal.processed(n)
    journal.close()
    journal.close()
    for call in (lambda: journal.save(b""), lambda: journal.processed(1), journal.sync):
        with pytest.raises(UsageError, match="closed"):
            call()  # type: ignore[no-untyped-call]
