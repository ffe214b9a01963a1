"""A total-order group: corosync's closed process groups, order agreed by all, no authentication. One daemon here."""

from __future__ import annotations

import asyncio
import ctypes
import os

from bench.peers.worker import Job, Meter, measure, run

from whence.live.fleet.channel import Channel

OK, TRY_AGAIN, AGREED, DISPATCH_ALL = 1, 6, 2, 2


class _Name(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * 128))


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


_Deliver = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t
)


class _Callbacks(ctypes.Structure):
    _fields_ = (("deliver", _Deliver), ("changed", ctypes.c_void_p))


class Group:
    """A member of the group."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._job = job
        self._meter = meter
        self._cpg = ctypes.CDLL("libcpg.so.4")
        self._handle = ctypes.c_uint64()
        self._callbacks = _Callbacks(_Deliver(self._deliver), None)

    async def listen(self) -> str:
        self._call("cpg_initialize", ctypes.byref(self._handle), ctypes.byref(self._callbacks))
        return "corosync"

    async def connect(self, addresses: list[str]) -> None:
        self._call("cpg_join", self._handle, ctypes.byref(_Name(5, b"bench")))
        fd = ctypes.c_int()
        self._call("cpg_fd_get", self._handle, ctypes.byref(fd))
        asyncio.get_running_loop().add_reader(
            fd.value, lambda: self._cpg.cpg_dispatch(self._handle, ctypes.c_int(DISPATCH_ALL))
        )

    def _deliver(self, handle: int, group: int, node: int, pid: int, message: int, length: int) -> None:
        if pid == os.getpid():
            return
        data, size = ctypes.string_at(message, length), self._job.payload
        self._meter.got([data[at : at + size] for at in range(0, length, size)])

    async def publish(self, payloads: list[bytes]) -> None:
        data = b"".join(payloads)
        vector = _Vector(data, len(data))
        while True:
            code = self._cpg.cpg_mcast_joined(
                self._handle, ctypes.c_int(AGREED), ctypes.byref(vector), ctypes.c_uint(1)
            )
            if code == OK:
                break
            if code != TRY_AGAIN:
                raise OSError(f"cpg_mcast_joined: {code}")
            await asyncio.sleep(0.0002)
        await asyncio.sleep(0)

    def _call(self, name: str, *args: object) -> None:
        code = getattr(self._cpg, name)(*args)
        if code != OK:
            raise OSError(f"{name}: {code}; is corosync running?")

    async def close(self) -> None:
        self._call("cpg_finalize", self._handle)


async def main(job: Job, channel: Channel, meter: Meter) -> None:
    await measure(job, channel, Group(job, meter), meter)


if __name__ == "__main__":
    run(main)
