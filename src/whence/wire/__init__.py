"""Numbered messages, codec, limits: what members say to each other, as bytes.

Numbers: 1..15 `cast`, 32..63 and 96..127 `ring`, 64..95 `order`; only ever appended, never used again. A new
field goes last, with a default. Each room has its messages in its own `messages.py`; here they become one union.
"""

from whence.wire.codec import decode as decode
from whence.wire.codec import decode_news as decode_news
from whence.wire.codec import encode as encode
from whence.wire.codec import encode_news as encode_news
from whence.wire.limits import DEFAULT as DEFAULT
from whence.wire.limits import Limits as Limits
from whence.wire.packet import MAGIC as MAGIC
from whence.wire.packet import VERSION as VERSION
from whence.wire.packet import Packet as Packet
from whence.wire.packet import header as header
from whence.wire.packet import pack as pack
from whence.wire.packet import read_header as read_header
from whence.wire.packet import unpack as unpack
from whence.wire.stream import StreamDecoder as StreamDecoder
from whence.wire.stream import frame_stream as frame_stream
from whence.wire.validate import Message as Message
from whence.wire.validate import is_name as is_name
from whence.wire.validate import validate as validate
