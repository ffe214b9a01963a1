"""Numbered messages and their codec: what members say to each other, as bytes.

Numbers: 1..15 `cast`, 32..63 and 96..127 `ring`, 64..95 `order`; only ever appended, never used again. A new
field goes last, with a default. Each room has its messages in its own `messages.py`; here they become one union.
"""

from whence.core.wire.codec import MAGIC as MAGIC
from whence.core.wire.codec import VERSION as VERSION
from whence.core.wire.codec import Message as Message
from whence.core.wire.codec import Packet as Packet
from whence.core.wire.codec import StreamDecoder as StreamDecoder
from whence.core.wire.codec import decode as decode
from whence.core.wire.codec import decode_news as decode_news
from whence.core.wire.codec import encode as encode
from whence.core.wire.codec import encode_news as encode_news
from whence.core.wire.codec import frame_stream as frame_stream
from whence.core.wire.codec import header as header
from whence.core.wire.codec import is_name as is_name
from whence.core.wire.codec import pack as pack
from whence.core.wire.codec import read_header as read_header
from whence.core.wire.codec import unpack as unpack
from whence.core.wire.codec import validate as validate
