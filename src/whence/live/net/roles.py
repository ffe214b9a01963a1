"""Roles: who may publish and who may only receive, enforced by every receiver.

A cluster with roles has one Ed25519 key pair. Publishers hold the private half and sign every frame. Everybody holds
the public half: what no publisher signed is neither delivered nor forwarded, and whoever sends it is cut off
(`whence.core.order.Seal`; the member asks before anything of the frame counts). A signature is about the cluster's
name, too: a frame of one cluster is nothing in another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from whence.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

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
    def may_publish(self) -> bool:
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
