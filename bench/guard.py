"""Sealing and opening a packet, against the bare cipher doing the same; and what a signature costs a frame."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from whence.core.clock import Frame
from whence.live.net.guard import SecretGuard
from whence.live.net.keys import PublisherSeal

SIZES = (64, 1200, 16_000, 60_000)
NUMBER = 1000
REPEAT = 7


def _micros(call: Callable[[], Any]) -> float:
    return min(timeit.repeat(call, number=NUMBER, repeat=REPEAT)) / NUMBER * 1e6


def _row(what: str, micros: float, floor: float, size: int) -> dict[str, Any]:
    return {
        "what": what,
        "us": round(micros, 2),
        "bare cipher us": round(floor, 2),
        "ratio": round(micros / floor, 2),
        "MB/s": round(size / micros, 1),
    }


def main() -> list[dict[str, Any]]:
    """One row per operation and size; `ratio` is against the bare cipher in the same run."""
    rows: list[dict[str, Any]] = []
    cipher, nonce = ChaCha20Poly1305(bytes(32)), bytes(12)
    for size in SIZES:
        packet = bytes(size)
        sender, receiver = SecretGuard(bytes(32)), SecretGuard(bytes(32))
        sealed = cipher.encrypt(nonce, packet, None)
        fresh = iter([sender.seal(packet) for _ in range(NUMBER * REPEAT)])  # a packet can be opened only once
        seal = _micros(lambda s=sender, p=packet: s.seal(p))
        opened = _micros(lambda r=receiver, f=fresh: r.open(next(f)))
        rows.append(_row(f"seal {size} bytes", seal, _micros(lambda p=packet: cipher.encrypt(nonce, p, None)), size))
        rows.append(_row(f"open {size} bytes", opened, _micros(lambda d=sealed: cipher.decrypt(nonce, d, None)), size))
    private = Ed25519PrivateKey.generate()
    publisher = PublisherSeal(private, private.public_key(), "cluster")
    deps = tuple((1 << 48, 1000 + i) for i in range(25))
    data = Frame.of(3, 1 << 48, 1001, "10.0.0.1:4000#1", deps, [bytes(64)] * 20).unsigned()
    signature = publisher.sign(data)
    for what, call in (("sign", lambda: publisher.sign(data)), ("verify", lambda: publisher.verify(data, signature))):
        micros = _micros(call)
        rows.append({"what": f"{what} a frame of 20 events", "us": round(micros, 1), "us per event": micros / 20})
    return rows


if __name__ == "__main__":
    for row in main():
        print(row)
