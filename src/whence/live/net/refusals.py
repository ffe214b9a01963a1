"""Who was refused and why, logged so that an operator sees a wrong key, and a flood of them does not fill the log."""

from __future__ import annotations

import logging
import ssl
import time

from whence.live.net.tls import refusal

log = logging.getLogger("whence.live.net")

EVERY_S = 60.0
"""Seconds between two log lines about one address."""
MAX_ADDRESSES = 256
"""Addresses remembered; the one refused longest ago is forgotten first."""
BURST = 16
"""Log lines within `EVERY_S`, about all addresses together."""


class Refusals:
    """The last reason for each address."""

    def __init__(self) -> None:
        self.last: dict[str, str] = {}
        self._logged: dict[str, float] = {}

    def note(self, address: str, why: str, now: float | None = None) -> None:
        """Remember it, and log it unless this address was logged a short time ago, or too many others were."""
        now = time.monotonic() if now is None else now
        self.last.pop(address, None)
        self.last[address] = why
        while len(self.last) > MAX_ADDRESSES:
            del self.last[next(iter(self.last))]
        self._logged = {a: at for a, at in self._logged.items() if now - at < EVERY_S}
        if address not in self._logged and len(self._logged) < BURST:
            self._logged[address] = now
            log.warning("a connection from %s is refused: %s", address, why)


def failed_handshake(error: Exception) -> str:
    """Why a TLS handshake failed, in words."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(refusal(error))
    if isinstance(error, TimeoutError):
        return "it did not finish the TLS handshake in time"
    return "it ended the TLS handshake: our certificate may be of another CA than its, or one of us does not use TLS"


def foreign_greeting(first: bytes) -> str:
    """What a first record that is no greeting looks like, if that can be said."""
    if first[:2] == b"\x16\x03":
        return "it speaks TLS, which this cluster does not use"
    if first[:2] == b"\x15\x03":
        return "it answers in TLS: give this process a certificate (tls=)"
    return ""
