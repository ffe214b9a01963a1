"""`whence keys`: what is made, for whom, and what is said when files are in the way, missing, open or wrong."""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path

import pytest

import whence
from whence.errors import KeysError, UsageError

if importlib.util.find_spec("cryptography") is None:
    pytest.skip("needs the cryptography package", allow_module_level=True)

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from whence.live.net import keys
from whence.live.net.guard import SecretGuard
from whence.live.net.keys import PublisherSeal


@pytest.fixture
def root(tmp_path: Path) -> Path:
    keys.init(tmp_path / "keys")
    return tmp_path / "keys"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_init_makes_all_and_keeps_it_private(tmp_path: Path) -> None:
    old = os.umask(0)  # whatever the umask
    try:
        made = keys.init(tmp_path / "deep" / "keys")
    finally:
        os.umask(old)
    assert [p.name for p in made] == ["ca.crt", "ca.key", "secret.key", "publisher.pub", "publisher.key"]
    assert sorted(p.name for p in (tmp_path / "deep" / "keys").iterdir()) == sorted(p.name for p in made)
    assert mode(tmp_path / "deep" / "keys") == 0o700 and {mode(p) for p in made} == {0o600}


def test_init_never_overwrites(root: Path) -> None:
    before = {p.name: p.read_bytes() for p in root.iterdir()}
    with pytest.raises(KeysError, match=r"ca\.crt exists"):
        keys.init(root)
    (root / "ca.crt").unlink()
    with pytest.raises(KeysError, match=r"ca\.key exists"):
        keys.init(root)
    assert {p.name: p.read_bytes() for p in root.iterdir()}.items() <= before.items()


def test_a_publisher_gets_all_and_a_receiver_no_signing_key(root: Path) -> None:
    alice, bob = keys.issue(root, "alice"), keys.issue(root, "bob", "receiver")
    assert {p.name for p in alice} - {p.name for p in bob} == {"alice.crt", "alice.key", "publisher.key"}
    assert not {"ca.key", "publisher.key"} & {p.name for p in bob} and "ca.key" not in {p.name for p in alice}
    assert {mode(p) for p in alice + bob} == {0o600} and mode(root / "alice") == mode(root / "bob") == 0o700
    a, b = keys.load(root / "alice"), keys.load(root / "bob")
    assert (a.name, a.role, b.name, b.role) == ("alice", "publisher", "bob", "receiver")
    assert a.private is not None and b.private is None and a.secret == b.secret == keys.read_secret(root / "secret.key")
    assert SecretGuard(a.secret).open(SecretGuard((root / "secret.key").read_text()).seal(b"x")) == b"x"
    signature = a.seal("lobby").sign(b"frame")
    assert b.seal("lobby").verify(b"frame", signature) and not b.seal("lobby").verify(b"fram3", signature)
    with pytest.raises(UsageError, match="only receive"):
        b.seal("lobby").sign(b"frame")


def test_names_and_roles_are_checked(root: Path) -> None:
    for name in ("", "a/b", "../up", "a b", ".hidden", "ca", "secret", "publisher", "x" * 64, "naïve"):
        with pytest.raises(KeysError, match="name"):
            keys.issue(root, name)
    with pytest.raises(KeysError, match="no such role: 'king'"):
        keys.issue(root, "alice", "king")
    for days in (0, -1, 99_999):
        with pytest.raises(KeysError, match="days"):
            keys.issue(root, "alice", days=days)
    assert not (root / "alice").exists()


def test_issue_never_overwrites(root: Path) -> None:
    keys.issue(root, "alice")
    with pytest.raises(KeysError, match="issued keys before"):
        keys.issue(root, "alice")


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "secret.key", "publisher.pub", "publisher.key"])
def test_issue_names_what_is_missing_and_leaves_nothing_half_made(root: Path, name: str) -> None:
    (root / name).unlink()
    with pytest.raises(KeysError, match=name):
        keys.issue(root, "alice")
    assert not (root / "alice").exists()


@pytest.mark.parametrize("name", ["ca.crt", "alice.crt", "alice.key", "secret.key", "publisher.pub", "publisher.key"])
@pytest.mark.parametrize("content", [None, b"", b"garbage\n", b"\xff" * 100])
def test_what_is_missing_or_garbage_is_named(root: Path, name: str, content: bytes | None) -> None:
    from whence.live.net import tls

    keys.issue(root, "alice")
    path = root / "alice" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UsageError, match="holds none" if content is None and name == "alice.crt" else name):
        found = keys.load(root / "alice")
        tls.contexts(found.ca, found.certificate, found.key)
        SecretGuard(found.secret)


@pytest.mark.parametrize("name", ["alice.key", "secret.key", "publisher.key"])
def test_private_files_that_others_can_read_are_refused(root: Path, name: str) -> None:
    keys.issue(root, "alice")
    (root / "alice" / name).chmod(0o640)
    with pytest.raises(KeysError, match=rf"{name} can be read by others \(mode 0640\): chmod 600"):
        keys.load(root / "alice")


def test_keys_of_another_pair_are_refused(tmp_path: Path, root: Path) -> None:
    other = keys.init(tmp_path / "other")[1]
    (root / "ca.key").write_bytes(other.read_bytes())
    with pytest.raises(KeysError, match=r"ca\.key is not the key of"):
        keys.issue(root, "alice")
    one, two = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    with pytest.raises(UsageError, match="does not belong"):
        PublisherSeal(one, two.public_key())


def test_a_rotation_takes_three_steps_and_any_of_them_again(root: Path) -> None:
    from whence.live.net.tls import contexts

    keys.issue(root, "alice")
    keys.issue(root, "wall", "receiver")
    old = keys.load(root / "alice")
    own = {name: (root / "alice" / name).read_bytes() for name in ("alice.crt", "alice.key", "publisher.key")}

    def step(number: int) -> tuple[keys.Keys, keys.Keys]:
        assert keys.rotate(root) == (number, [root, root / "alice", root / "wall"])
        found = keys.load(root / "alice"), keys.load(root / "wall")
        for one in found:
            contexts(one.ca, one.certificate, one.key)
            assert one.secret == keys.read_secret(root / "secret.key") and mode(one.ca) == mode(one.key) == 0o600
        return found

    def interrupt(number: int) -> None:
        """As if the last thing that the step writes were not on disk."""
        (root / "next" / "step").write_text(str(number - 1)) if number > 1 else (root / "next" / "step").unlink()

    step(1)
    interrupt(1)
    both, _ = step(1)
    assert both.cas[:1] == old.cas and both.secret[:1] == old.secret and len(both.cas) == len(both.secret) == 2
    assert {name: (root / "alice" / name).read_bytes() for name in own} == own
    step(2)
    interrupt(2)
    swapped, wall = step(2)
    assert swapped.cas == both.cas[::-1] and swapped.secret == both.secret[::-1]
    assert keys.issued_by(keys.read_certificates(swapped.certificate)[0], swapped.cas[:1]) and wall.role == "receiver"
    keys.issue(root, "late")
    keys.rotate(root)
    assert not (root / "next").exists()
    for name in ("alice", "wall", "late"):
        new = keys.load(root / name)
        assert new.cas == swapped.cas[:1] and new.secret == swapped.secret[:1] and new.public == old.public
        contexts(new.ca, new.certificate, new.key)
    assert keys.rotate(root)[0] == 1, "and once more"


def test_a_revoked_certificate_is_named(root: Path, tmp_path: Path) -> None:
    for name in ("alice", "bob"):
        keys.issue(root, name)
    (root / "alice").rename(tmp_path / "alice")
    with pytest.raises(KeysError, match=r"alice is not there: to revoke a certificate, put it back"):
        keys.revoke(root, "alice")
    (tmp_path / "alice").rename(root / "alice")
    serial = keys.read_certificates(root / "alice" / "alice.crt")[0].serial_number
    stolen = {path.name: path.read_bytes() for path in (root / "alice").iterdir()}
    assert keys.revoke(root, "alice") == [root / "revoked", root / "bob" / "revoked"]
    assert keys.load(root / "bob").revoked == {serial} and not (root / "alice").exists()
    keys.issue(root, "alice")
    assert keys.load(root / "alice").revoked == {serial}
    for name, content in stolen.items():
        (root / "alice" / name).write_bytes(content)
    with pytest.raises(KeysError, match=r"alice\.crt was revoked"):
        keys.load(root / "alice")
    (root / "bob" / "revoked").write_text("no number\n")
    with pytest.raises(KeysError, match="no list of revoked"):
        keys.load(root / "bob")


async def test_keys_that_cannot_be_used_leave_the_old_ones(root: Path) -> None:
    for name in ("alice", "bob"):
        keys.issue(root, name)
    async with whence.create("x", tls=root / "alice") as alice:
        with pytest.raises(UsageError, match="the kind of protection cannot change"):
            alice.rekey(secret=b"s" * 32)
        with pytest.raises(KeysError, match="of another member"):
            alice.rekey(tls=root / "bob")
        (root / "alice" / "ca.crt").write_text("garbage")
        with pytest.raises(KeysError, match=r"ca\.crt is no certificate"):
            alice.rekey()
        async with whence.join("x", alice.address, tls=root / "bob") as bob:
            assert bob.me in alice.members()
    async with whence.create("x", secret=b"s" * 32) as one:
        with pytest.raises(UsageError, match="the kind of protection cannot change"):
            one.rekey()
        with pytest.raises(UsageError, match="too short"):
            one.rekey(secret=[b"s" * 32, b"short"])
        async with whence.join("x", one.address, secret=b"s" * 32) as two:
            assert two.me in one.members()


def test_no_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="is no directory"):
        keys.load(tmp_path / "nowhere")
    with pytest.raises(KeysError, match=r"ca\.crt is missing"):
        keys.issue(tmp_path / "nowhere", "alice")
    (tmp_path / "file").write_text("x")
    with pytest.raises(KeysError, match="cannot write the directory"):
        keys.init(tmp_path / "file" / "keys")
    with pytest.raises(KeysError, match=r"holds alice\.crt, bob\.crt"):
        for name in ("alice", "bob"):
            (tmp_path / f"{name}.crt").write_text("x")
        keys.load(tmp_path)
