"""The shared secret: what a peer without it can learn or do (nothing), and what a replayer can (nothing)."""

from __future__ import annotations

import importlib.util
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import Unauthentic, UsageError
from whence.live.net import guard as guards
from whence.live.net.guard import SecretGuard, decode_secret, encode_secret, master_key

if importlib.util.find_spec("cryptography") is None:
    pytest.skip("needs the cryptography package", allow_module_level=True)

SECRET = bytes(range(32))
S = 1_000_000_000


class Clock:
    """A wall clock in nanoseconds that the test sets."""

    def __init__(self, at: float = 1_000_000.0) -> None:
        self.ns = int(at * S)

    def __call__(self) -> int:
        return self.ns

    def forward(self, seconds: float) -> None:
        self.ns += int(seconds * S)


def pair() -> tuple[SecretGuard, SecretGuard, Clock]:
    clock = Clock()
    return SecretGuard(SECRET, clock=clock), SecretGuard(SECRET, clock=clock), clock


def refused(guard: SecretGuard, data: bytes, why: str) -> None:
    """It is refused for this reason and for no other, and counted."""
    before = guard.stats()
    with pytest.raises(Unauthentic):
        guard.open(data)
    after = guard.stats()
    assert {name: n - before[name] for name, n in after.items() if n != before[name]} == {why: 1}


@given(packet=st.binary(max_size=2000))
def test_what_is_sealed_can_be_opened(packet: bytes) -> None:
    a, b, _ = pair()
    sealed = a.seal(packet)
    assert len(sealed) == len(packet) + a.overhead
    assert b.open(sealed) == packet


def test_nothing_of_the_packet_shows() -> None:
    a, _, _ = pair()
    packet = b"\xc1\x01" + b"the-cluster" + b"10.0.0.1:7001#1" + bytes(200)
    first, second = a.seal(packet), a.seal(packet)
    for sealed in (first, second):
        # After the header: that ends in zeros (time and counter), and one byte of the ciphertext may be another.
        assert b"cluster" not in sealed and b"7001" not in sealed and bytes(8) not in sealed[28:]
    assert first[28:] != second[28:]


def test_every_changed_bit_is_noticed() -> None:
    a, b, _ = pair()
    b.open(a.seal(b"the session is known"))
    sealed = a.seal(b"pay 100 to bob")
    for bit in range(8 * len(sealed)):
        forged = bytearray(sealed)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unauthentic):
            b.open(bytes(forged))
    assert b.open(sealed) == b"pay 100 to bob"  # and none of the forgeries has used the real one up
    assert b.stats()["sessions"] == 1


def test_a_packet_of_our_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "REKEY_PACKETS", 3)
    a, b, _ = pair()
    sealed = [a.seal(b"x") for _ in range(7)]
    for data in sealed:  # also after a change of key
        refused(a, data, "reflected")
        b.open(data)


def test_the_window_is_bounded_and_what_lies_behind_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "BLOCKS", 4)
    a, b, _ = pair()
    sealed = [a.seal(b"x") for _ in range(6 * 1024)]
    for data in sealed[1:]:
        b.open(data)
    (session,) = b._sessions.values()
    assert len(session.blocks) == 4
    refused(b, sealed[0], "replayed")  # never seen, but nobody can know that any more
    refused(b, sealed[-1], "replayed")
    assert b.open(a.seal(b"y")) == b"y"


def test_the_window_against_a_model() -> None:
    """What a set of all counters would say, the window says, too, as long as it reaches."""
    rng = random.Random(7)
    a, b, _ = pair()
    sealed = [a.seal(i.to_bytes(4, "big")) for i in range(3000)]
    seen: set[int] = set()
    for _ in range(9000):
        i = rng.randrange(len(sealed))
        if i in seen:
            with pytest.raises(Unauthentic):
                b.open(sealed[i])
        else:
            assert b.open(sealed[i]) == i.to_bytes(4, "big")
            seen.add(i)


def test_a_clock_too_far_off_is_refused_and_said() -> None:
    for seconds in (-31, 31):
        a, b, clock = pair()
        if seconds > 0:
            a.seal(b"")
        sealed_at = Clock(clock.ns / S + 3600)
        a._clock = sealed_at
        b._clock = Clock(sealed_at.ns / S + seconds)
        refused(b, a.seal(b"x"), "stale")
        b._clock = Clock(sealed_at.ns / S + seconds * 29 / 31)
        assert b.open(a.seal(b"y")) == b"y"


def test_a_restarted_receiver_refuses_what_was_recorded_before() -> None:
    a, b, clock = pair()
    recorded = [a.seal(b"x") for _ in range(10)]
    for data in recorded:
        b.open(data)
    clock.forward(0.2)
    b = SecretGuard(SECRET, clock=clock)  # it remembers nothing
    for data in recorded:
        refused(b, data, "before")
    assert b.open(a.seal(b"new")) == b"new"
    for data in recorded:  # the session is known again: what was sealed before our start still does not count
        with pytest.raises(Unauthentic):
            b.open(data)


def test_a_sender_whose_clock_is_behind_is_heard_in_the_end() -> None:
    clock = Clock()
    behind = Clock(clock.ns / S - 5)
    a, b = SecretGuard(SECRET, clock=behind), SecretGuard(SECRET, clock=clock)
    refused(b, a.seal(b"x"), "before")
    behind.forward(5.1)
    clock.forward(5.1)
    assert b.open(a.seal(b"y")) == b"y"


def test_a_new_key_before_the_counter_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "REKEY_PACKETS", 100)
    a, b, clock = pair()
    sessions = set()
    for i in range(1000):
        sealed = a.seal(b"%d" % i)
        sessions.add(sealed[:16])
        assert int.from_bytes(sealed[22:28], "big") < 100
        assert b.open(sealed) == b"%d" % i
    assert len(sessions) == 10
    monkeypatch.setattr(guards, "REKEY_MS", 1000)
    a, b, clock = pair()
    early = a.seal(b"x")
    clock.forward(1.0)
    assert a.seal(b"x")[:16] != early[:16]
    assert b.open(early) == b"x"  # it was on its way when the key changed


def test_no_nonce_is_used_twice_under_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "REKEY_PACKETS", 50)
    a, _, clock = pair()
    seen = set()
    for i in range(500):
        if i % 7 == 0:
            clock.ns -= S  # a clock may even go backwards
        seen.add(a.seal(b"x")[:28])
    assert len(seen) == 500


def test_sessions_are_bounded_and_the_old_ones_make_room_without_letting_replays_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guards, "MAX_SESSIONS", 100)
    clock = Clock()
    b = SecretGuard(SECRET, clock=clock)
    clock.forward(1)
    recorded = []
    for _ in range(100):
        recorded.append(SecretGuard(SECRET, clock=clock).seal(b"x"))
        b.open(recorded[-1])
    one_more = SecretGuard(SECRET, clock=clock)
    refused(b, one_more.seal(b"x"), "full")
    clock.forward(31)
    assert b.open(one_more.seal(b"y")) == b"y"
    assert b.stats()["sessions"] == 1
    for data in recorded:
        with pytest.raises(Unauthentic):
            b.open(data)
    clock.forward(-31)  # even when somebody sets our clock back
    for data in recorded:
        refused(b, data, "before")


def test_a_forked_child_does_not_use_its_parents_nonces() -> None:
    a, b, _ = pair()
    a.seal(b"x")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, a.seal(b"from the child"))
        os._exit(0)
    os.waitpid(child, 0)
    theirs, ours = os.read(read, 1000), a.seal(b"from the parent")
    os.close(read), os.close(write)
    assert theirs[:16] != ours[:16]
    assert b.open(theirs) == b"from the child" and b.open(ours) == b"from the parent"


def test_a_secret_may_be_bytes_text_or_a_passphrase() -> None:
    clock = Clock()
    one, two = (SecretGuard("correct horse battery staple", clock=clock) for _ in range(2))
    assert two.open(one.seal(b"x")) == b"x"
    assert master_key(encode_secret(SECRET)) == master_key(encode_secret(SECRET) + "\n") == master_key(SECRET)
    assert decode_secret(encode_secret(SECRET)) == SECRET
    assert len({master_key(s) for s in (SECRET, SECRET[:16], "a passphrase", "a passphrasf", b"a passphrase 123")}) == 5
    for bad in (b"", b"short", "", "short", "whence-secret:", "whence-secret:!!!", "whence-secret:c2hvcnQ="):
        with pytest.raises(UsageError):
            master_key(bad)


def test_two_secrets_at_a_time() -> None:
    """A rotation in three steps, at one member after the other: each opens what the other seals, at any time."""
    clock = Clock()
    old, new, leaked = bytes(32), SECRET, SecretGuard(bytes(32), clock=clock)
    a, b = SecretGuard(old, clock=clock), SecretGuard([old], clock=clock)
    for secrets in ([old, new], [new, old], [new]):
        for guard in (a, b):
            guard.rekey(secrets)
            assert b.open(a.seal(b"to b")) == b"to b" and a.open(b.seal(b"to a")) == b"to a"
        repeated = a.seal(b"x")
        assert b.open(repeated) == b"x"
        with pytest.raises(Unauthentic, match="here before"):
            b.open(repeated)
        if old in secrets:
            assert b.open(leaked.seal(b"y")) == b"y"
    for packet in (leaked.seal(b"in a session that is known"), SecretGuard(old, clock=clock).seal(b"in a new one")):
        with pytest.raises(Unauthentic, match="another key"):
            b.open(packet)
    b.rekey([new, old])
    assert b.open(leaked.seal(b"again")) == b"again" and b.stats()["forged"] == 2
    with pytest.raises(UsageError, match="empty list"):
        b.rekey([])


def test_the_document_says_what_the_code_does() -> None:
    path = Path(__file__).parents[3] / "SECURITY.md"
    if not path.exists():
        pytest.skip("no SECURITY.md beside the tests")
    text = " ".join(path.read_text(encoding="utf-8").split())
    assert f"the last {guards.BLOCKS << guards.BLOCK_BITS:,} packets" in text
    assert f"older than {guards.SKEW_MS // 1000} s" in text
    assert f"Fewer than {guards.MIN_SECRET_BYTES} bytes or {guards.MIN_PASSPHRASE} characters" in text
    assert (guards.REKEY_MS, guards.REKEY_PACKETS) == (3_600_000, 1 << 32)
    assert "every hour, or after 2^32 packets" in text
