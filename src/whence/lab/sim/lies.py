"""A lying member: well-formed messages of every kind of the wire, with invented contents.

The contents follow the types. Numbers are mostly small, so that many lies are plausible, and sometimes extreme; names
are those of members, of earlier and of invented lives of them. Most of this is found out, and the liar is cut off. A
**careful** liar says only what an honest receiver could say, so that it is not, and goes on.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from whence.core.clock import MemberId
from whence.core.clock.logs import Telling
from whence.core.ring.messages import RingMessage, RingNews, by_receiver
from whence.core.wire import Message, header, unpack
from whence.errors import RemoteError, UsageError

EXTREMES = (0, 1, 2, 3, 7, 255, 1 << 24, (1 << 24) - 1, 1 << 40, (1 << 40) - 1, 1 << 48, 1 << 48 | 1, (1 << 64) - 1)
EXTREME = 0.1
"""Share of numbers that are extreme."""
ATTEMPTS = 100
"""How often a careful liar thinks of something else before it says nothing."""


class Liar:
    """Makes the bytes of messages, by their types."""

    def __init__(self, rng: random.Random, names: Sequence[str]) -> None:
        self.rng = rng
        self.names = names
        self._messages = _kinds(Message)
        self._news = _kinds(RingNews)

    def message(self) -> bytes:
        return msgspec.msgpack.encode(self.value(self.rng.choice(self._messages)))

    def careful(self, packet: bytes) -> bytes:
        """A lie that decodes, that a receiver may tell, and that needs no signature; empty if none comes to mind.
        `packet`: what comes before it."""
        for _ in range(ATTEMPTS):
            data = self.message()
            try:
                message = unpack(packet + data).message
                if isinstance(message, RingMessage):
                    by_receiver(message)
            except RemoteError:
                continue
            if not (getattr(message, "items", ()) or isinstance(message, Telling)):  # that is for total order
                return data
        return b""

    def value(self, kind: Any, name: str = "") -> Any:
        """A value of the type, as builtins. `name`: of the field that it is for."""
        rng, of = self.rng, msgspec.inspect
        match kind:
            case of.StructType(fields=fields):
                tag = [kind.tag] if kind.tag is not None else []
                return [*tag, *(self.value(field.type, field.name) for field in fields)]
            case of.UnionType(types=types):
                return self.value(rng.choice(types), name)
            case of.NamedTupleType(fields=fields):
                return [self.value(field.type, field.name) for field in fields]
            case of.TupleType(item_types=types):
                return [self.value(one, name) for one in types]
            case of.VarTupleType(item_type=one) | of.ListType(item_type=one):
                return [self.value(one, name) for _ in range(rng.choice((0, 0, 1, 1, 2, 4)))]
            case of.IntType():
                return rng.choice(EXTREMES) if rng.random() < EXTREME else rng.randrange(1, 4)
            case of.StrType():
                return rng.choice(self.names)
            case of.BytesType():
                news = name == "body" and rng.random() < 0.5
                return msgspec.msgpack.encode(self.value(rng.choice(self._news))) if news else rng.randbytes(8)
            case of.BoolType():
                return rng.random() < 0.5
            case of.FloatType():
                return rng.random()
            case _:
                return None


def _kinds(union: Any) -> list[Any]:
    info = msgspec.inspect.type_info(union)
    return list(info.types) if isinstance(info, msgspec.inspect.UnionType) else [info]


def lies(liar: Liar, cluster: str, me: MemberId, messages: int, careful: bool) -> Iterator[bytes]:
    """So many packets of the member, fewer if it is careful and nothing comes to mind."""
    packet = header(cluster, me)
    for _ in range(messages):
        if told := liar.careful(packet) if careful else liar.message():
            yield packet + told


class Key:
    """The publishers' key of a simulated cluster with roles. It stands for the signatures of `live/net/tls.py`: only
    those that hold the key can sign, and everybody can verify."""

    def __init__(self, cluster: str, can_sign: bool) -> None:
        self._key = hashlib.blake2b(cluster.encode(), digest_size=32).digest()
        self.can_sign = can_sign

    def sign(self, data: bytes) -> bytes:
        if not self.can_sign:
            raise UsageError("this member may only receive")
        return self._signature(data)

    def verify(self, data: bytes, signature: bytes) -> bool:
        return signature == self._signature(data)

    def _signature(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=16).digest()
