"""Every packet of every channel passes a guard: what it seals only holders of the cluster's keys can read or make.

A packet sealed by `SecretGuard`, the same bytes for every peer:

    session            nonce                  ciphertext   tag
    origin   serial    time ms   counter
      12       4          6         6             ..        16

1. The **session** is one guard's life: 12 random bytes, and a serial that rises with every change of key. Its key is
   HKDF(secret, salt = session): no two processes ever encrypt under the same key. AES-256-GCM (NIST SP 800-38D),
   which processors compute by themselves: for a frame in a sixth of the time of ChaCha20-Poly1305.
2. The **nonce** is never used twice: the counter alone makes it unique. Long before it could run out, and every hour,
   the session's serial, hence its key, changes.
3. **Forged, truncated or altered** bytes fail the tag: the session chooses the key and the nonce is the cipher's own,
   so neither can be changed either. Nothing is remembered about what fails.
4. **Replayed** bytes are refused: per session a receiver remembers which of the last 131,072 counters it has seen.
   Reordering within them is fine, so one sender may use several connections at once.
5. **Old** bytes are refused: the sender's clock may differ from the receiver's by at most `SKEW_MS`. A session may
   be forgotten when all that was seen of it is older than that; it cannot come back.
6. **Replayed across a restart of the receiver**, which has forgotten all sessions: what was sealed before the receiver
   started does not count. So clocks have to agree to within the time a restart takes (SECURITY.md says what follows
   if they do not).
7. **Reflected** bytes are refused: a guard does not open what it sealed.
8. Several secrets at a time, for a rotation (`rekey`): the first one seals, each opens. The first packet of a session
   shows which one is its.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from whence.errors import Unauthentic, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SECRET_PREFIX: Final = "whence-secret:"
"""A generated secret as text: this, then base64."""

MIN_SECRET_BYTES: Final = 16
MIN_PASSPHRASE: Final = 12

_ORIGIN = 12
_SESSION = 16
_NONCE = 12
_HEADER = _SESSION + _NONCE
_TAG = 16
_COUNTER_BITS = 48
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_MS = 1_000_000

REKEY_PACKETS: Final = 1 << 32
"""Packets under one key. Far fewer than the cipher bears with nonces that are counted, not drawn."""

REKEY_MS: Final = 3_600_000
"""Milliseconds under one key: bounds how much one key has ever protected, also in a quiet cluster."""

BLOCK_BITS: Final = 10
BLOCKS: Final = 128
"""The replay window of a session: the last `BLOCKS` blocks of `2^BLOCK_BITS` counters in which something was seen. A
sender counts over all its targets, so the window has to cover what it sends to everybody while one packet waits
behind a slow stream. At most about 35 kB for the busiest session."""

MAX_SESSIONS: Final = 16_384
"""Sessions known at a time; only holders of the secret can make one. About 3 kB each when idle."""

SKEW_MS: Final = 30_000
"""Milliseconds by which clocks may differ. Higher: less care for clocks. Lower: packets can be held back for a shorter
time. A packet on its way for longer is refused, too."""


class Plain:
    """No protection by itself: the connections have it (`tls.py`), or nobody else can reach the address (see
    `SECURITY.md`)."""

    overhead = 0

    def seal(self, packet: bytes) -> bytes:
        return packet

    def open(self, data: bytes | memoryview) -> bytes:
        return bytes(data)

    def stats(self) -> dict[str, int]:
        return {}


class SecretGuard:
    """Admits holders of the shared secret only. One guard serves one process; it is not thread-safe.

    `secret`: bytes are taken as they are and have to be random (at least 16, better 32: `whence keys init` makes
    them). A str that begins with `whence-secret:` is such bytes in base64; any other str is a passphrase, which is
    stretched (scrypt) and still only as good as it is hard to guess: somebody who has recorded one packet can try
    passphrases at leisure. A sequence of these: rule 8.
    """

    overhead = _HEADER + _TAG
    """Bytes that sealing adds."""

    def __init__(self, secret: Secret, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._cipher, self._invalid = _aes()
        self._masters = master_keys(secret)
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}
        self._forget_at = min(64, MAX_SESSIONS)
        self._horizon = clock() // _MS  # rule 6: our start; later also the newest stamp of what was forgotten
        self._stats = dict.fromkeys(
            ("sealed", "opened", "short", "reflected", "forged", "replayed", "stale", "before", "full"), 0
        )
        self.renew()
        _GUARDS.add(self)

    def renew(self) -> None:
        """A new origin, as if the process had just started: what a forked child has to do before it sends."""
        self._origin = os.urandom(_ORIGIN)
        self._serial = -1
        self._next_key(self._clock() // _MS)

    def rekey(self, secret: Secret) -> None:
        """From now on these secrets (rule 8). What is sealed under one that is not among them is refused."""
        self._masters = master_keys(secret)
        for name, session in self._sessions.items():
            known = session.master in self._masters
            session.decrypt = self._aead(session.master, name).decrypt if known else self._dropped
        self._next_key(self._clock() // _MS)

    def _dropped(self, *_: object) -> bytes:
        raise self._invalid

    # -- sealing ------------------------------------------------------------------------------------------------

    def seal(self, packet: bytes) -> bytes:
        """The packet, readable only for holders of the secret: sealed once, the same bytes to every peer."""
        now = self._clock() // _MS
        if self._counter >= REKEY_PACKETS or now >= self._rekey_at:
            self._next_key(now)
        nonce = (now << _COUNTER_BITS | self._counter).to_bytes(_NONCE, "big")
        self._counter += 1
        self._stats["sealed"] += 1
        return b"%b%b%b" % (self._session, nonce, self._encrypt(nonce, packet, None))

    def _next_key(self, now: int) -> None:
        self._serial += 1
        self._session = self._origin + self._serial.to_bytes(_SESSION - _ORIGIN, "big")
        self._encrypt = self._aead(self._masters[0], self._session).encrypt
        self._counter = 0
        self._rekey_at = now + REKEY_MS

    def _aead(self, master: bytes, session: bytes) -> AESGCM:
        return self._cipher(hkdf(master, session, b"whence/1 packet"))

    # -- opening ------------------------------------------------------------------------------------------------

    def open(self, data: bytes | memoryview) -> bytes:
        """What another holder of the secret sealed a short time ago and this guard has not opened before. Raises
        `Unauthentic` for everything else, and never blames a member for it."""
        if len(data) < self.overhead:
            raise self._refuse("short", f"{len(data)} bytes are no sealed packet")
        name, nonce = bytes(data[:_SESSION]), bytes(data[_SESSION:_HEADER])
        stamp_counter = int.from_bytes(nonce, "big")
        stamp = stamp_counter >> _COUNTER_BITS
        counter = stamp_counter & _COUNTER_MASK
        now = self._clock() // _MS
        if stamp < self._horizon:
            raise self._refuse("before", "sealed before this process started, or in a session long over")
        known = self._sessions.get(name)
        session = self._unknown(name, nonce, data) if known is None else known
        block, bit = counter >> BLOCK_BITS, 1 << (counter & _BLOCK_MASK)
        if block < session.floor or session.blocks.get(block, 0) & bit:
            raise self._refuse("replayed", "a packet that was here before, or behind too many others")
        try:
            packet = session.decrypt(nonce, memoryview(data)[_HEADER:], None)
        except self._invalid:
            raise self._refuse("forged", "the seal does not match: another key, or altered on the way") from None
        if abs(stamp - now) > SKEW_MS:  # after the seal: only a member's clock is worth a remark
            age = (now - stamp) / 1000
            raise self._refuse(
                "stale", f"sealed {age:+.1f} s ago by its sender's clock, which may differ by {SKEW_MS / 1000:g} s"
            )
        if known is None:
            self._admit(name, session, now)
        session.blocks[block] = session.blocks.get(block, 0) | bit
        if len(session.blocks) > BLOCKS:
            session.forget()
        if stamp > session.newest:
            session.newest = stamp
        self._stats["opened"] += 1
        return packet

    def _unknown(self, name: bytes, nonce: bytes, data: bytes | memoryview) -> _Session:
        """A session to try the packet with. Nothing is kept before its seal has been checked (rule 3)."""
        if name.startswith(self._origin):
            raise self._refuse("reflected", "a packet of our own came back")
        *others, last = (_Session(self._aead(master, name).decrypt, master) for master in self._masters)
        for session in others:
            with suppress(self._invalid):
                session.decrypt(nonce, memoryview(data)[_HEADER:], None)
                return session
        return last

    def _admit(self, name: bytes, session: _Session, now: int) -> None:
        if len(self._sessions) >= self._forget_at:
            self._forget(now)
            if len(self._sessions) >= MAX_SESSIONS:
                raise self._refuse("full", f"more than {MAX_SESSIONS} sessions within {SKEW_MS / 1000} s")
        self._sessions[name] = session

    def _forget(self, now: int) -> None:
        """Rule 5: what is too old to be taken anyway need not be remembered, even if our clock is set back later."""
        for name, session in list(self._sessions.items()):
            if session.newest < now - SKEW_MS:
                self._horizon = max(self._horizon, session.newest + 1)
                del self._sessions[name]
        self._forget_at = min(max(64, 2 * len(self._sessions)), MAX_SESSIONS)

    def _refuse(self, why: str, text: str) -> Unauthentic:
        self._stats[why] += 1
        return Unauthentic(text)

    def stats(self) -> dict[str, int]:
        """Counters: what was opened, and what was refused and why."""
        return {**self._stats, "sessions": len(self._sessions)}


@dataclass(slots=True)
class _Session:
    """One sender's packets as a receiver knows them: which counters were seen, in blocks of bits."""

    decrypt: Callable[[bytes, memoryview, None], bytes]
    master: bytes
    blocks: dict[int, int] = field(default_factory=dict)
    floor: int = 0  # blocks below are over
    newest: int = 0  # the newest time stamp

    def forget(self) -> None:
        """The oldest block: what comes of it now was perhaps here before."""
        oldest = min(self.blocks)
        del self.blocks[oldest]
        self.floor = oldest + 1


_BLOCK_MASK = (1 << BLOCK_BITS) - 1
Guard = SecretGuard | Plain
"""Seals packets and opens them."""


# -- keys -------------------------------------------------------------------------------------------------------

Secret = bytes | str | Sequence[bytes | str]
"""One, or several for a rotation: the first one seals."""


def master_keys(secret: Secret) -> list[bytes]:
    """The master key of each of the secrets."""
    several = [secret] if isinstance(secret, bytes | bytearray | str) else secret
    if not several:
        raise UsageError("secret= is an empty list: give at least one secret")
    return [master_key(one) for one in several]


def master_key(secret: bytes | str) -> bytes:
    """The key that all others are derived from. Raises UsageError for a secret that is too short to be one."""
    if isinstance(secret, str):
        if not secret.startswith(SECRET_PREFIX):
            return _stretch(secret)
        secret = decode_secret(secret)
    if len(secret) < MIN_SECRET_BYTES:
        raise UsageError(
            f"a secret of {len(secret)} bytes is too short: take at least {MIN_SECRET_BYTES} random bytes "
            "(`whence keys init` makes 32), or a passphrase as str"
        )
    return hkdf(bytes(secret), b"", b"whence/1 secret")


def encode_secret(secret: bytes) -> str:
    """The secret as text, for a file or an environment variable."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def decode_secret(text: str) -> bytes:
    """The inverse of `encode_secret`; white space around it is allowed."""
    text = text.strip()
    if not text.startswith(SECRET_PREFIX):
        raise UsageError(f"not a secret: it does not begin with {SECRET_PREFIX!r}")
    try:
        return base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"not a secret: after {SECRET_PREFIX!r} base64 is expected ({error})") from None


def hkdf(key: bytes, salt: bytes, info: bytes) -> bytes:
    """32 bytes derived from `key` (RFC 5869, SHA-256)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), 32, salt, info).derive(key)


@lru_cache(maxsize=8)
def _stretch(passphrase: str) -> bytes:
    """A passphrase made expensive to guess: 16 MB and some 50 ms a try. There is no place to keep a salt that all
    members know beforehand, so it is fixed: equal passphrases of two clusters are equal secrets."""
    if len(passphrase) < MIN_PASSPHRASE:
        raise UsageError(
            f"a passphrase of {len(passphrase)} characters is too easy to guess: take at least {MIN_PASSPHRASE}, "
            "or better the random secret that `whence keys init` makes"
        )
    import hashlib  # lazily: it takes memory

    return hashlib.scrypt(passphrase.encode(), salt=b"whence/1 passphrase", n=1 << 14, r=8, p=1, dklen=32)


def _aes() -> tuple[type[AESGCM], type[Exception]]:
    """The cipher and what it raises. Imported here: whoever runs without protection needs no cryptography."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise UsageError("a shared secret needs the cryptography package: pip install 'whence[net]'") from None
    return AESGCM, InvalidTag


# A forked child would go on with its parent's counter under its parent's key: the one thing a nonce must never do.
_GUARDS: weakref.WeakSet[SecretGuard] = weakref.WeakSet()


def _renew_all() -> None:
    for guard in list(_GUARDS):
        guard.renew()


os.register_at_fork(after_in_child=_renew_all)
