"""Numbered messages, codec, limits: what members say to each other, as bytes.

Numbers: 1..15 `cast`, 32..63 and 96..127 `ring`, 64..95 `order`; only ever appended, never used again. A new
field goes last, with a default. Each room has its messages in its own `messages.py`; here they become one union.
"""

from whence.wire.codec import decode, decode_news, encode, encode_news
from whence.wire.limits import DEFAULT, Limits
from whence.wire.packet import MAGIC, VERSION, Header, Packet, header, pack, pack_body, read_header, unpack
from whence.wire.rules import Message, validate
from whence.wire.stream import StreamDecoder, frame_stream
from whence.wire.validate import is_name

__all__ = [
    "DEFAULT",
    "MAGIC",
    "VERSION",
    "Header",
    "Limits",
    "Message",
    "Packet",
    "StreamDecoder",
    "decode",
    "decode_news",
    "encode",
    "encode_news",
    "frame_stream",
    "header",
    "is_name",
    "pack",
    "pack_body",
    "read_header",
    "unpack",
    "validate",
]
