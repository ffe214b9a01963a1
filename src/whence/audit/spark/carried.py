"""What tasks tell each other about a run that is spread (`whence.audit.spark.giant`), as bytes: MessagePack, with
arrays compressed and Arrow's as Arrow streams. Unlike with pickles no code is run when they are read."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from whence.audit.judge.batch.coding import Known, Said
from whence.audit.judge.batch.kernel import Past
from whence.audit.judge.batch.outline import Head, Notes, Shared
from whence.audit.judge.batch.rated import Sample
from whence.audit.judge.batch.spread import Ended, Plan, Scouted
from whence.audit.judge.batch.verdicts import States
from whence.audit.judge.findings import Doubt
from whence.audit.judge.tickets import Holding, Pair

_NUMPY: Final = 1
_ARROW: Final = 2
_TABLE: Final = 3


def packed(value: Any) -> bytes:
    """Any of the values below."""
    return _ENCODER.encode(value)


def scouted(data: bytes) -> Scouted:
    return msgspec.msgpack.decode(data, type=Scouted)


def plan(data: bytes) -> Plan:
    return msgspec.msgpack.decode(data, type=Plan)


def head(data: bytes) -> Head:
    plain = Head(*_DECODER.decode(data))
    return plain._replace(
        said=[Said(*one) for one in plain.said],
        others=[(name, Said(*said)) for name, said in plain.others],
        tenures=msgspec.convert(plain.tenures, list[Holding]),
    )


def notes(data: bytes) -> Notes:
    return Notes(*_DECODER.decode(data))


def shared(data: bytes) -> Shared:
    known, past, taken, early, unmet, pairs = _DECODER.decode(data)
    return Shared(Known(*known), Past(*past), States(*taken), early, unmet, msgspec.convert(pairs, list[Pair]))


def ended(data: bytes) -> Ended:
    members, ends, elsewhere, doubts, sample, known_end = _DECODER.decode(data)
    return Ended(members, States(*ends), elsewhere, msgspec.convert(doubts, list[Doubt]), Sample(*sample), known_end)


def _encoded(value: Any) -> msgspec.msgpack.Ext:
    if isinstance(value, np.ndarray):
        kind = f"{value.dtype.str} {' '.join(map(str, value.shape))}".encode().ljust(64)
        return msgspec.msgpack.Ext(_NUMPY, kind + pa.compress(value.tobytes(), "lz4", asbytes=True))
    if isinstance(value, pa.Array):
        return msgspec.msgpack.Ext(_ARROW, _stream(pa.table({"": value})))
    if isinstance(value, pa.Table):
        return msgspec.msgpack.Ext(_TABLE, _stream(value))
    raise TypeError(f"{type(value)} is not carried between tasks")


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _decoded(code: int, data: memoryview) -> Any:
    if code == _NUMPY:
        kind, *shape = bytes(data[:64]).decode().split()
        found = np.empty(list(map(int, shape)), np.dtype(kind))
        plain = pa.decompress(pa.py_buffer(data[64:]), found.nbytes, "lz4")
        found.reshape(-1)[:] = np.frombuffer(memoryview(plain), found.dtype)
        return found
    table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    return table if code == _TABLE else table.column(0).combine_chunks()


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_encoded)
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=_decoded)
