"""The keys of a cluster: made once by its operator (`init`), issued to each member (`issue`), read by it (`load`).

    DIR/                      the operator's: whoever has ca.key decides who is a member
        ca.crt  ca.key        the cluster's certificate authority (EC P-256)
        secret.key            the shared secret, for clusters without TLS
        publisher.pub  publisher.key
        revoked               certificates that count no more, by serial number
        next/                 during a rotation: the CA and the secret to come, and how many of its steps are done
        NAME/                 all that the member NAME needs, and no more: to be copied to its machine
            ca.crt  NAME.crt  NAME.key  secret.key  publisher.pub  revoked
            publisher.key     only for the role `publisher`

During a rotation (`rotate`, three steps), `ca.crt` and `secret.key` hold two each: the first is in use, the other is
accepted. A step is on all machines before the next one begins, so nobody meets a key that it does not know.

Directories are 0700 and files 0600; private files that others can read are refused.

Roles say who may publish and who may only receive, and every receiver enforces them. A cluster with roles has one
Ed25519 key pair. Publishers hold the private half and sign every frame. Everybody holds the public half: what no
publisher signed is neither delivered nor forwarded, and whoever sends it is cut off (`whence.core.order.Seal`; the
member asks before anything of the frame counts). A signature covers the cluster's name, too: a frame of one cluster is
nothing in another.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from whence.errors import KeysError, UsageError
from whence.files import why, write_whole
from whence.live.net.guard import decode_secret, encode_secret, master_keys

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes


PUBLISHER: Final = "publisher"
RECEIVER: Final = "receiver"
ROLES: Final = (PUBLISHER, RECEIVER)

SIGNATURE_BYTES: Final = 64


class PublisherSeal:
    """Signs frames, if it has the private key, and verifies them. Implements `whence.core.order.Seal`."""

    def __init__(self, private: Ed25519PrivateKey | None, public: Ed25519PublicKey, cluster: str = "") -> None:
        if private is not None and private.public_key() != public:
            raise UsageError("the publishers' private key does not belong to their public key")
        self._private = private
        self._public = public
        self._context = b"whence/1 frame\0" + cluster.encode() + b"\0"
        from cryptography.exceptions import InvalidSignature

        self._invalid = InvalidSignature

    @property
    def can_sign(self) -> bool:
        """It can sign: to be asked before a ticket is taken that would be of no use."""
        return self._private is not None

    def sign(self, data: bytes) -> bytes:
        """Raises UsageError for a member that may only receive."""
        if self._private is None:
            raise UsageError("this member may only receive: publishing needs the key that role 'publisher' is issued")
        return self._private.sign(self._context + data)

    def verify(self, data: bytes, signature: bytes) -> bool:
        """A publisher of this cluster signed this."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            self._public.verify(signature, self._context + data)
        except self._invalid:
            return False
        return True


CA_DAYS: Final = 3650
MEMBER_DAYS: Final = 365
ROLE_URN: Final = "urn:whence:role:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RESERVED = ("ca", "secret", "publisher", "revoked", "next")


@dataclass(frozen=True)
class Keys:
    """What one member was issued."""

    directory: Path
    name: str
    role: str
    ca: Path
    certificate: Path
    key: Path
    cas: tuple[x509.Certificate, ...]
    revoked: frozenset[int]
    """Serial numbers."""
    secret: tuple[bytes, ...]
    public: Ed25519PublicKey
    private: Ed25519PrivateKey | None

    def seal(self, cluster: str) -> PublisherSeal:
        """The seal of this member's frames in this cluster."""
        return PublisherSeal(self.private, self.public, cluster)


def init(root: Path, *, days: int = CA_DAYS) -> list[Path]:
    """Make a cluster's keys in a directory that has none; returns the files."""
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    publisher = ed25519.Ed25519PrivateKey.generate()
    public = publisher.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    files = {**_renewed(days), "publisher.pub": public, "publisher.key": _private_pem(publisher)}
    there = [name for name in files if (root / name).exists()]
    if there:
        raise KeysError(
            f"{root / there[0]} exists: new keys would lock out every member that holds the old ones. Take another "
            "directory, or move the old keys away first"
        )
    return _write(root, files)


def _renewed(days: int = CA_DAYS) -> dict[str, bytes]:
    """What a rotation makes anew."""
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name, secret = f"whence cluster CA {os.urandom(4).hex()}", f"{encode_secret(os.urandom(32))}\n"
    ca = _certificate(name, key.public_key(), days, key)
    return {"ca.crt": _pem(ca), "ca.key": _private_pem(key), "secret.key": secret.encode()}


def issue(root: Path, name: str, role: str = PUBLISHER, *, days: int = MEMBER_DAYS) -> list[Path]:
    """Make what the member `name` needs in a directory of that name in `root`; returns the files."""
    if role not in ROLES:
        raise KeysError(f"no such role: {role!r} (there are: {', '.join(ROLES)})")
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise KeysError(
            f"not a member's name: {name!r} (want 1 .. 63 letters, digits, '.', '_' or '-', and none of "
            f"{', '.join(_RESERVED)})"
        )
    bundle = root / name
    if bundle.exists():
        raise KeysError(f"{bundle} exists: {name!r} was issued keys before. Remove it to issue new ones")
    try:
        return _write(bundle, _issued(root, name, role, days))
    except KeysError:
        shutil.rmtree(bundle, ignore_errors=True)  # half of it would only be in the way of the next try
        raise


def _issued(root: Path, name: str, role: str, days: int = MEMBER_DAYS) -> dict[str, bytes]:
    """A new certificate of the member, its key, and what all members have."""
    from cryptography.hazmat.primitives.asymmetric import ec

    ca, *_ = read_certificates(root / "ca.crt")
    ca_key = _read_private(root / "ca.key")
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey) or ca.public_key() != ca_key.public_key():
        raise KeysError(f"{root / 'ca.key'} is not the key of {root / 'ca.crt'}")
    key = ec.generate_private_key(ec.SECP256R1())
    files = {
        "ca.crt": _read(root / "ca.crt"),
        f"{name}.crt": _pem(_certificate(name, key.public_key(), days, ca_key, ca, role)),
        f"{name}.key": _private_pem(key),
        "secret.key": _read(root / "secret.key", private=True),
        "publisher.pub": _read(root / "publisher.pub"),
    }
    if role == PUBLISHER:
        files["publisher.key"] = _read(root / "publisher.key", private=True)
    if (root / "revoked").exists():
        files["revoked"] = _read(root / "revoked")
    return files


def rotate(root: Path) -> tuple[int, list[Path]]:
    """The next step of a rotation, and the directories that it changed. 1: a new CA and secret are accepted. 2: they
    are in use, and each member has a certificate of the new CA. 3: the old ones are gone. After an interruption the
    same step is done again: `next/step` is written last."""
    coming, marker = root / "next", root / "next" / "step"
    step = int(_read(marker)) + 1 if marker.exists() else 1
    cas, secrets = read_certificates(root / "ca.crt"), read_secret(root / "secret.key")
    if step == 1:
        _write(coming, _renewed())
    new, secret = read_certificates(coming / "ca.crt")[0], read_secret(coming / "secret.key")[0]
    if step == 1:
        cas, secrets = (cas[0], new), (secrets[0], secret)
    else:
        cas = (new, *(old for old in cas if old != new and step == 2))
        secrets = (secret, *(old for old in secrets if old != secret and step == 2))
        _write(root, {"ca.key": _read(coming / "ca.key", private=True)})
    text = "".join(f"{encode_secret(one)}\n" for one in secrets)
    _write(root, {"ca.crt": b"".join(map(_pem, cas)), "secret.key": text.encode()})
    bundles = _bundles(root)
    for bundle in bundles:
        path = bundle / f"{bundle.name}.crt"
        name, role = identity(read_certificates(path)[0], str(path))
        mine = () if step == 2 else (f"{name}.crt", f"{name}.key")  # only then the certificates change
        _write(bundle, {file: content for file, content in _issued(root, name, role).items() if file not in mine})
    if step < 3:
        _write(coming, {marker.name: str(step).encode()})
    else:
        marker.unlink()
        shutil.rmtree(coming)
    return step, [root, *bundles]


def revoke(root: Path, name: str) -> list[Path]:
    """The certificate of the member `name` counts no more, for whoever has the new `revoked`; its directory is removed.
    Returns the files to be copied."""
    bundle = root / name
    if not _NAME.fullmatch(name) or not bundle.is_dir():
        raise KeysError(f"{bundle} is not there: to revoke a certificate, put it back as {bundle / f'{name}.crt'}")
    serial = read_certificates(bundle / f"{name}.crt")[0].serial_number
    known = _read(root / "revoked") if (root / "revoked").exists() else b""
    files = {"revoked": known + f"{serial:x} {name}\n".encode()}
    shutil.rmtree(bundle)
    return [path for one in (root, *_bundles(root)) for path in _write(one, files)]


def _bundles(root: Path) -> list[Path]:
    """The members' directories."""
    return sorted(path.parent for path in root.glob("*/*.crt") if path.stem == path.parent.name)


def load(directory: str | os.PathLike[str]) -> Keys:
    """What `issue` made, read and checked."""
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    bundle = Path(directory)
    if not bundle.is_dir():
        raise KeysError(f"{bundle} is no directory: give the one that `whence keys issue` made")
    certificates = sorted(p for p in bundle.glob("*.crt") if p.name != "ca.crt")
    if len(certificates) != 1:
        found = ", ".join(p.name for p in certificates) or "none"
        raise KeysError(f"{bundle} should hold one member's certificate, but holds {found}: see `whence keys issue`")
    own = read_certificates(certificates[0])[0]
    name, role = identity(own, str(certificates[0]))
    revoked = _read_revoked(bundle / "revoked")
    if own.serial_number in revoked:
        raise KeysError(f"{certificates[0]} was revoked: `whence keys issue` makes a new one")
    key = bundle / f"{certificates[0].stem}.key"
    _read(key, private=True)
    try:
        public = load_pem_public_key(_read(bundle / "publisher.pub"))
    except ValueError as error:
        raise KeysError(f"{bundle / 'publisher.pub'} is no public key: {error}") from None
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise KeysError(f"{bundle / 'publisher.pub'} is no Ed25519 key")
    private = _read_private(bundle / "publisher.key") if role == PUBLISHER else None
    if private is not None and not isinstance(private, ed25519.Ed25519PrivateKey):
        raise KeysError(f"{bundle / 'publisher.key'} is no Ed25519 key")
    return Keys(
        *(bundle, name, role, bundle / "ca.crt", certificates[0], key, read_certificates(bundle / "ca.crt"), revoked),
        *(read_secret(bundle / "secret.key"), public, private),
    )


def read_secret(path: str | os.PathLike[str]) -> tuple[bytes, ...]:
    """The shared secret in a file that `init` made; during a rotation two, a line each."""
    lines = _read(Path(path), private=True).decode("ascii", "replace").split()
    try:
        secrets = tuple(decode_secret(line) for line in lines or [""])
        master_keys(secrets)
        return secrets
    except UsageError as error:
        raise KeysError(f"{path}: {error}") from None


def read_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """The certificates in a PEM file: one, or during a rotation two CAs'."""
    from cryptography import x509

    try:
        return tuple(x509.load_pem_x509_certificates(_read(path)))
    except ValueError as error:
        raise KeysError(f"{path} is no certificate: {error}") from None


def issued_by(certificate: x509.Certificate, cas: Sequence[x509.Certificate]) -> bool:
    """One of the CAs has signed it."""
    from cryptography.exceptions import InvalidSignature

    for ca in cas:
        with suppress(InvalidSignature, ValueError, TypeError):
            certificate.verify_directly_issued_by(ca)
            return True
    return False


def _read_revoked(path: Path) -> frozenset[int]:
    """Each line is a serial number in hexadecimal, and for people a name."""
    lines = _read(path).decode("ascii", "replace").splitlines() if path.exists() else ()
    try:
        return frozenset(int(line.split()[0], 16) for line in lines if line.strip())
    except ValueError:
        raise KeysError(f"{path} is no list of revoked certificates: `whence keys revoke` writes it") from None


def identity(certificate: x509.Certificate, where: str) -> tuple[str, str]:
    """(name, role) that a certificate speaks for."""
    from cryptography import x509

    names, uris = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME), []
    with suppress(x509.ExtensionNotFound):
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = alternative.get_values_for_type(x509.UniformResourceIdentifier)
    roles = [uri.removeprefix(ROLE_URN) for uri in uris if uri.startswith(ROLE_URN)]
    if len(names) != 1 or len(roles) != 1 or roles[0] not in ROLES:
        raise KeysError(f"{where} names no role: it was not made by `whence keys issue`")
    return str(names[0].value), roles[0]


# -- certificates -----------------------------------------------------------------------------------------------


def _certificate(
    name: str,
    public: EllipticCurvePublicKey,
    days: int,
    signer: EllipticCurvePrivateKey,
    ca: x509.Certificate | None = None,
    role: str = "",
) -> x509.Certificate:
    """A member's of this role; without `ca` a CA's."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not 1 <= days <= 36_500:
        raise KeysError(f"certificates are valid for 1 .. 36500 days, not {days}")
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    start, end = now - datetime.timedelta(hours=1), now + datetime.timedelta(days=days)  # for clocks that are behind
    uses = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    usage = x509.KeyUsage(
        digital_signature=ca is not None,
        key_cert_sign=ca is None,
        crl_sign=ca is None,
        **dict.fromkeys((*uses, "decipher_only"), False),
    )
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=ca is None, path_length=0 if ca is None else None), True),
        (usage, True),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
    ]
    if ca is not None:
        end = min(end, ca.not_valid_after_utc)
        if end <= now:
            raise KeysError(f"the cluster's CA expired on {end:%Y-%m-%d}: it can issue nothing any more")
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # every member is both
        issuer = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        extensions += [
            (x509.ExtendedKeyUsage(both), False),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), False),
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(ROLE_URN + role)]), False),
        ]
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issued = subject if ca is None else ca.subject
    made = x509.CertificateBuilder(issued, subject, public, x509.random_serial_number(), start, end)
    for extension, critical in extensions:
        made = made.add_extension(extension, critical)
    return made.sign(signer, SHA256())


# -- files ------------------------------------------------------------------------------------------------------


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private_pem(key: EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(directory: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Make the directory, if need be, and each file whole; nobody else may read them."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(directory / name, content, private=True)
    except OSError as error:
        raise KeysError(f"cannot write the directory {directory}: {why(error)}") from None
    return [directory / name for name in files]


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if private and mode & 0o077:
                raise KeysError(f"{path} can be read by others (mode {mode:04o}): chmod 600 it, and think who has it")
            return file.read(1 << 20)
    except FileNotFoundError:
        raise KeysError(f"{path} is missing: `whence keys init` and `whence keys issue` make the keys") from None
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror}") from None


def _read_private(path: Path) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(_read(path, private=True), None)
    except (ValueError, TypeError) as error:
        raise KeysError(f"{path} is no private key without a password: {error}") from None
