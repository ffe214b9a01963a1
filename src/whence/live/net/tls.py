"""Mutual TLS 1.3 within a cluster: only holders of a certificate of the cluster's CA are members.

No host names are checked: a member is who its certificate says, wherever it listens. No other CA counts, not even the
system's. Sessions are not resumed, so every connection shows its certificates.
"""

from __future__ import annotations

import datetime
import os
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from whence.core.clock.bounds import keep_last
from whence.errors import KeysError, Unauthentic, UsageError
from whence.live.net.guard import Guard, Plain, Secret, SecretGuard
from whence.live.net.keys import Keys, identity, issued_by, load, read_certificates
from whence.live.net.transport import is_loopback, parse_address

MAX_PINS: Final = 65_536

_VERIFY = {  # X509_V_ERR_*
    9: "its certificate is not valid yet: compare the clocks",
    10: "its certificate has expired",
    18: "its certificate is self-signed",
    19: "its certificate is of another CA",
    20: "its certificate is of another CA",
    21: "its certificate is of another CA",
    26: "its certificate is not for members",
    7: "its certificate's signature is wrong",
}
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate of us and got none",
    "TLSV1_ALERT_UNKNOWN_CA": "our certificate is of another CA than its",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses our certificate",
    "TLSV1_ALERT_DECRYPT_ERROR": "it refuses our certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not speak TLS 1.3",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS",
    "RECORD_LAYER_FAILURE": "it does not speak TLS",
}


class Protection(NamedTuple):
    """Who may be at the other end, and how that is made sure."""

    guard: Guard
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    keys: Keys | None = None
    """What this process was issued, where TLS is used."""

    @classmethod
    def of(
        cls,
        secret: Secret | None,
        tls: Keys | str | os.PathLike[str] | None,
        insecure: bool,
        *addresses: str,
    ) -> Protection:
        """One of the first three is given. `addresses`: where the connections lead; without protection they have to be
        on this machine."""
        if sum((secret is not None, tls is not None, insecure)) != 1:
            raise UsageError(
                "who may take part? Give one of secret=... (shared by all), tls=DIRECTORY (from `whence keys issue`) "
                "or insecure=True, which is for experiments on this machine alone"
            )
        if secret is not None:
            return cls(SecretGuard(secret))
        if tls is not None:
            keys = tls if isinstance(tls, Keys) else load(tls)
            return cls(Plain(), *contexts(keys.ca, keys.certificate, keys.key), keys)
        for address in addresses:
            if not is_loopback(parse_address(address)[0]):
                raise UsageError(f"insecure=True is for loopback only, not for {address}")
        return cls(Plain())

    @property
    def options(self) -> str:
        """Which options of `whence node` are for such keys."""
        if self.keys is not None:
            return f"--tls {self.keys.directory} {self.keys.name}"
        return "--insecure" if isinstance(self.guard, Plain) else "--secret-file FILE"


class TlsPeer(NamedTuple):
    """Who is at the other end, by its certificate."""

    name: str
    role: str


def contexts(ca: Path, certificate: Path, key: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(for accepted connections, for our own): both sides show a certificate of one of these CAs. Raises `KeysError`
    for files that no peer would accept."""
    _check_own(ca, certificate)
    made: list[ssl.SSLContext] = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        try:
            context.load_verify_locations(ca)
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            raise KeysError(f"{key} is not the key of {certificate}, or is damaged ({error.reason})") from None
        except OSError as error:
            raise KeysError(f"cannot read {key}: {error.strerror}") from None
        made.append(context)
    server, client = made
    server.num_tickets = 0
    return server, client


def peer(connection: ssl.SSLObject | ssl.SSLSocket, keys: Keys | None = None) -> TlsPeer:
    """Who is at the other end (`transport.get_extra_info("ssl_object")`). Raises `Unauthentic` for a certificate that
    names no member, or that these keys, newer than the connection perhaps, do not let in."""
    from cryptography.x509 import load_der_x509_certificate

    der = connection.getpeercert(binary_form=True)
    if der is None:
        raise Unauthentic("the peer shows no certificate")
    try:
        certificate = load_der_x509_certificate(der)
        if keys is not None and certificate.serial_number in keys.revoked:
            raise Unauthentic("its certificate was revoked")
        if keys is not None and not issued_by(certificate, keys.cas):
            raise Unauthentic("its certificate is of another CA")
        return TlsPeer(*identity(certificate, "the peer's certificate"))
    except (KeysError, ValueError) as error:
        raise Unauthentic(str(error)) from None


def refusal(error: ssl.SSLError) -> Unauthentic:
    """A failed handshake, or a connection that the peer ended after it, as a named error that says why."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unauthentic(f"peer refused: {_VERIFY.get(error.verify_code, error.verify_message)}")
    reason = error.reason or str(error)
    return Unauthentic(f"no connection with the peer: {_REASONS.get(reason, reason)}")


class Pins:
    """Which certificate speaks for which address. A connection that this process opened proves it: the listener at an
    address shows its certificate. Without proof, the first certificate that claims an address speaks for it while it
    is connected, and loses the address to its listener. A certificate speaks for one address at a time, the last one
    it has claimed: a stolen or hostile certificate cannot be several members."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, int]] = {}
        self._proved: dict[str, str] = {}
        self._at: dict[str, str] = {}  # by name

    def prove(self, address: str, name: str) -> str:
        """`name` listens at `address`. Returns the name that had claimed it wrongly, or an empty string."""
        self._proved.pop(address, None)
        self._proved[address] = name
        keep_last(self._proved, MAX_PINS)
        holder, _ = self._held.get(address, (name, 0))
        if holder == name:
            return ""
        del self._held[address]
        return holder

    def claim(self, address: str, name: str) -> str:
        """A connection of `name` speaks for `address`. Raises `Unauthentic` if another name does. Returns the address
        that it has spoken for until now; empty: this one, or none."""
        holder, connections = self._held.get(address, (self._proved.get(address, name), 0))
        if holder != name:
            raise Unauthentic(f"{name!r} speaks for {address}, which is {holder!r}'s")
        if not connections and len(self._held) >= MAX_PINS:
            raise Unauthentic(f"more than {MAX_PINS} addresses at a time")
        self._held[address] = (name, connections + 1)
        before = self._at.pop(name, address)
        self._at[name] = address
        keep_last(self._at, MAX_PINS)
        return before if before != address else ""

    def connections(self, address: str) -> int:
        """Of whoever speaks for it."""
        return self._held.get(address, ("", 0))[1]

    def release(self, address: str, name: str) -> None:
        """The connection is over."""
        holder, connections = self._held.get(address, ("", 0))
        if holder == name:
            if connections > 1:
                self._held[address] = (name, connections - 1)
            else:
                del self._held[address]

    def __len__(self) -> int:
        return len(self._held)


def _check_own(ca_path: Path, path: Path) -> None:
    """What our peers would say about our own certificate is better said here."""
    cas, own = read_certificates(ca_path), read_certificates(path)[0]
    now = datetime.datetime.now(datetime.UTC)
    if own.not_valid_after_utc <= now:
        raise KeysError(f"{path} expired on {own.not_valid_after_utc:%Y-%m-%d}: issue a new one (`whence keys issue`)")
    if own.not_valid_before_utc > now:
        raise KeysError(f"{path} is valid from {own.not_valid_before_utc:%Y-%m-%d} only: is the clock right?")
    if not issued_by(own, cas):
        raise KeysError(f"{path} was not issued by {ca_path}: no other member would accept it")
