"""Mutual TLS: two ends, real handshakes, no sockets. Who is not of the cluster's CA is refused, and told why."""

from __future__ import annotations

import datetime
import importlib.util
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from whence.errors import KeysError, Unauthentic

if importlib.util.find_spec("cryptography") is None:
    pytest.skip("needs the cryptography package", allow_module_level=True)

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from whence.live.net import keys, tls


class End:
    """One end of a connection."""

    def __init__(self, context: ssl.SSLContext, server: bool) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=server)
        self.ready = False
        self.error: ssl.SSLError | None = None

    def step(self) -> None:
        if self.error is not None:
            return
        try:
            if self.ready:
                self.tls.read(1000)
            else:
                self.tls.do_handshake()
                self.ready = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error


def connect(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[End, End]:
    """A handshake, and what the ends say after it."""
    s, c = End(server, True), End(client, False)
    for _ in range(10):
        c.step()
        s.incoming.write(c.outgoing.read())
        s.step()
        c.incoming.write(s.outgoing.read())
    return s, c


def contexts(bundle: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    found = keys.load(bundle)
    return tls.contexts(found.ca, found.certificate, found.key)


def why(end: End) -> str:
    assert end.error is not None
    return str(tls.refusal(end.error))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("keys")
    keys.init(root)
    keys.issue(root, "alice")
    keys.issue(root, "bob", "receiver")
    return root


def stranger(root: Path, change: Callable[[x509.CertificateBuilder], x509.CertificateBuilder], ca: bool = True) -> Path:
    """A bundle with a certificate of the cluster's CA (or of itself) that is not as it should be. `load` would refuse
    some of them: a hostile member does not ask."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = ec.generate_private_key(ec.SECP256R1())
    issuer = keys.read_certificates(root / "ca.crt")[0]
    signer = load_pem_private_key((root / "ca.key").read_bytes(), None) if ca else key
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mallory")])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if ca else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .not_valid_before(now - datetime.timedelta(days=2))
    )
    certificate = change(builder).sign(signer, SHA256())  # type: ignore[arg-type]
    path = root / f"stranger-{x509.random_serial_number()}.pem"
    path.write_bytes(keys._pem(certificate) + keys._private_pem(key))
    return path


def hostile(root: Path, chain: Path | None) -> ssl.SSLContext:
    """A client that checks its own certificate for nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(root / "ca.crt")
    if chain is not None:
        context.load_cert_chain(chain)
    return context


def days(n: int) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=n)


def test_members_meet_and_know_each_other_by_name_and_role(root: Path) -> None:
    server, client = connect(contexts(root / "alice")[0], contexts(root / "bob")[1])
    assert server.ready and client.ready and server.error is client.error is None
    assert tls.peer(server.tls) == ("bob", "receiver") and tls.peer(client.tls) == ("alice", "publisher")
    assert server.tls.version() == "TLSv1.3" and not server.tls.session_reused


def test_a_member_of_another_cluster_is_refused_by_both(tmp_path: Path, root: Path) -> None:
    keys.init(tmp_path)
    keys.issue(tmp_path, "alice")
    server, client = connect(contexts(root / "alice")[0], contexts(tmp_path / "alice")[1])
    assert "another CA" in why(client) and not (server.ready and client.ready and server.error is None)
    trusting = contexts(tmp_path / "alice")[1]
    trusting.load_verify_locations(root / "ca.crt")
    server, client = connect(contexts(root / "alice")[0], trusting)
    assert "another CA" in why(server) and "another CA" in why(client) and not server.ready


def test_who_shows_nothing_is_refused(root: Path) -> None:
    server, client = connect(contexts(root / "alice")[0], hostile(root, None))
    assert "shows no certificate" in why(server) and "wants a certificate" in why(client) and not server.ready


@pytest.mark.parametrize(
    ("change", "ca", "reason"),
    [
        (lambda b: b.not_valid_after(days(-1)), True, "has expired"),
        (lambda b: b.not_valid_after(days(1)), False, "self-signed"),
        (
            lambda b: b.not_valid_after(days(1)).add_extension(
                x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            ),
            True,
            "not for members",
        ),
    ],
    ids=["expired", "self-signed", "code-signing"],
)
def test_wrong_certificates_are_refused(root: Path, change: Callable, ca: bool, reason: str) -> None:  # type: ignore[type-arg]
    server, client = connect(contexts(root / "alice")[0], hostile(root, stranger(root, change, ca)))
    assert reason in why(server) and not server.ready
    assert isinstance(tls.refusal(server.error or ssl.SSLError()), Unauthentic)
    assert client.error is not None


def test_a_member_cannot_make_members(tmp_path: Path, root: Path) -> None:
    """A certificate signed by a member's key, with the whole chain shown."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    signer = load_pem_private_key((root / "alice" / "alice.key").read_bytes(), None)
    alice = keys.read_certificates(root / "alice" / "alice.crt")[0]
    key = ec.generate_private_key(ec.SECP256R1())
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    made = keys._certificate("mallory", key.public_key(), 1, signer, alice, "publisher")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(keys._pem(made) + keys._private_pem(key) + keys._pem(alice))
    server, _ = connect(contexts(root / "alice")[0], hostile(root, chain))
    assert server.error is not None and not server.ready and "peer refused" in why(server)


def test_a_certificate_that_names_no_role_is_refused(root: Path) -> None:
    server, _ = connect(
        contexts(root / "alice")[0], hostile(root, stranger(root, lambda b: b.not_valid_after(days(1))))
    )
    assert server.ready
    with pytest.raises(Unauthentic, match="names no role"):
        tls.peer(server.tls)


def test_older_tls_and_other_protocols_are_refused(root: Path) -> None:
    old = contexts(root / "bob")[1]
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    server, client = connect(contexts(root / "alice")[0], old)
    assert "does not speak TLS 1.3" in why(server) and "does not speak TLS 1.3" in why(client)
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64):
        end = End(contexts(root / "alice")[0], True)
        end.incoming.write(noise)
        end.step()
        assert "does not speak TLS" in why(end)


def test_ones_own_bad_files_are_named_before_a_peer_has_to(tmp_path: Path, root: Path) -> None:
    other = tmp_path / "other"
    keys.init(other)
    keys.issue(other, "alice")
    mine, theirs = keys.load(root / "alice"), keys.load(other / "alice")
    with pytest.raises(KeysError, match="was not issued by"):
        tls.contexts(theirs.ca, mine.certificate, mine.key)
    with pytest.raises(KeysError, match="is not the key of"):
        tls.contexts(mine.ca, mine.certificate, theirs.key)
    expired = stranger(root, lambda b: b.not_valid_after(days(-1)))
    with pytest.raises(KeysError, match="expired on"):
        tls.contexts(mine.ca, expired, expired)
    with pytest.raises(KeysError, match="missing"):
        tls.contexts(mine.ca, tmp_path / "no.crt", mine.key)
    with pytest.raises(KeysError, match="cannot read"):
        tls.contexts(mine.ca, mine.certificate, tmp_path / "no.key")


def test_an_address_is_spoken_for_by_one_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = tls.Pins()
    pins.claim("10.0.0.1:7", "alice")
    pins.claim("10.0.0.1:7", "alice")
    with pytest.raises(Unauthentic, match="'mallory' speaks for"):
        pins.claim("10.0.0.1:7", "mallory")
    pins.release("10.0.0.1:7", "mallory")
    pins.release("10.0.0.1:7", "alice")
    with pytest.raises(Unauthentic):
        pins.claim("10.0.0.1:7", "mallory")
    pins.release("10.0.0.1:7", "alice")
    pins.claim("10.0.0.1:7", "carol")  # alice is gone, her address has a new owner
    assert len(pins) == 1
    assert pins.prove("10.0.0.1:7", "carol") == ""
    assert pins.prove("10.0.0.1:7", "alice") == "carol", "whoever listens there is right"
    pins.release("10.0.0.1:7", "carol")
    with pytest.raises(Unauthentic):
        pins.claim("10.0.0.1:7", "carol")
    pins.claim("10.0.0.1:7", "alice")
    monkeypatch.setattr(tls, "MAX_PINS", 2)
    pins.claim("10.0.0.2:7", "dave")
    with pytest.raises(Unauthentic, match="more than"):
        pins.claim("10.0.0.3:7", "erin")
