"""One small class for each system: how its users publish and subscribe. Nothing here orders, repeats or repairs.

layout "one": questions and answers share a subject (topic, channel, stream, queue). "two": one for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import threading


class Adapter:
    pipelined = False  # the client library keeps the order of publishes that are under way together

    def __init__(self, app, cfg: dict) -> None:
        self.app, self.cfg = app, cfg
        self.role, self.home = cfg["role"], cfg["home"]  # home: address of the server at this client's place
        self.here, self.peers = cfg["here"], cfg["peers"]  # own address; role -> address
        self.two = cfg["layout"] == "two"
        self.opt = cfg.get("opt", {})
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task] = []

    def topic(self, value: str) -> str:
        if not self.two:
            return self.named("room")
        return self.named("answers" if value[0] == "r" or value[:2] == "wB" else "questions")

    def topics(self) -> list[str]:
        """What this client subscribes to."""
        if self.role == "A":
            return []
        return self.every()[:1] if self.role == "B" else self.every()

    def every(self) -> list[str]:
        return [self.named(t) for t in (("questions", "answers") if self.two else ("room",))]

    def named(self, topic: str) -> str:
        return f"{topic}-{self.cfg['suffix']}"  # fresh for each run: nothing of an earlier one can be taken for its own

    async def publish(self, value: str) -> None:
        self.app.log("pub", value)
        try:
            await self.send(value)
        except Exception as error:
            self.app.log("fail", value)
            self.app.log("err", f"{value}: {type(error).__name__} {error}"[:160])

    async def on(self, data) -> None:
        """A delivery in a coroutine."""
        answer = self.app.got(data if isinstance(data, str) else bytes(data).decode())
        if answer:
            await self.publish(answer)

    def on_now(self, data) -> None:
        """A delivery in a plain callback of the loop's thread: answers leave in order, by one task."""
        answer = self.app.got(data if isinstance(data, str) else bytes(data).decode())
        if answer:
            self._answers.put_nowait(answer)

    def on_thread(self, data) -> None:
        """A delivery in a thread of the client library; `send_now` publishes from there."""
        answer = self.app.got(data if isinstance(data, str) else bytes(data).decode())
        if answer:
            self.app.log("pub", answer)
            try:
                self.send_now(answer)
            except Exception as error:
                self.app.log("fail", answer)
                self.app.log("err", f"{answer}: {error}"[:160])

    def task(self, coroutine) -> None:
        self._tasks.append(asyncio.create_task(coroutine))

    async def cancel(self) -> None:
        """End what reads: nothing of an old connection is delivered beside a new one."""
        tasks, self._tasks = self._tasks, []
        for t in tasks:
            t.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2)

    async def answerer(self) -> None:
        while True:
            await self.publish(await self._answers.get())

    def send_now(self, value: str) -> None:
        raise NotImplementedError

    async def send(self, value: str) -> None:
        self.send_now(value)

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def reconnect(self) -> None:
        await self.close()
        await self.open()


class Nats(Adapter):
    async def open(self) -> None:
        import nats

        async def quiet(error) -> None:
            self.app.log("note", f"nats {type(error).__name__} {error}"[:120])

        self.nc = await nats.connect(
            f"nats://{self.home}:4222", reconnect_time_wait=0.1, max_reconnect_attempts=-1, error_cb=quiet
        )
        await self.subscribe()
        await self.nc.flush()

    async def subscribe(self) -> None:
        for topic in self.topics():
            await self.nc.subscribe(topic, cb=self._got)

    async def _got(self, msg) -> None:
        await self.on(msg.data)

    async def send(self, value: str) -> None:
        await self.nc.publish(self.topic(value), value.encode())

    async def close(self) -> None:
        await self.nc.close()


class JetStream(Nats):
    pipelined = True

    async def subscribe(self) -> None:
        self.js = self.nc.jetstream(timeout=10)
        for topic in self.every():
            if self.role == "A":
                for _attempt in range(20):
                    try:
                        await self.js.add_stream(
                            name=topic.upper(), subjects=[topic], num_replicas=self.opt.get("replicas", 1)
                        )
                        break
                    except Exception as error:
                        self.app.log("note", f"add_stream {error}"[:120])
                        await asyncio.sleep(0.5)
        for topic in self.topics():
            if self.opt.get("ordered"):
                await self.js.subscribe(topic, ordered_consumer=True, cb=self._got)
            else:
                await self.js.subscribe(topic, durable=f"{self.role}-{topic}", cb=self._got)

    async def send(self, value: str) -> None:
        await self.js.publish(self.topic(value), value.encode())  # waits for the stream's acknowledgement


class RedisPubSub(Adapter):
    async def open(self) -> None:
        import redis.asyncio as redis

        self.r = redis.Redis(host=self.home, port=6379, socket_connect_timeout=2)
        self.ps = None
        if self.topics():
            self._up = asyncio.Event()
            self.task(self._listen(self.r))
            await asyncio.wait_for(self._up.wait(), 10)

    async def _listen(self, r) -> None:
        while r is self.r:  # not the connection of before a reconnect
            try:
                self.ps = r.pubsub()
                await self.ps.subscribe(*self.topics())
                self._up.set()
                while True:
                    m = await self.ps.get_message(ignore_subscribe_messages=True, timeout=None)
                    if m and m["type"] == "message":
                        await self.on(m["data"])
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.app.log("note", f"redis {type(error).__name__}")
                await asyncio.sleep(0.05)

    async def send(self, value: str) -> None:
        await self.r.publish(self.topic(value), value)

    async def close(self) -> None:
        r, self.r = self.r, None
        await self.cancel()
        if self.ps:
            await self.ps.aclose()
        await r.aclose()


class RedisSharded(RedisPubSub):
    """SSUBSCRIBE, SPUBLISH of a cluster: a channel lives at the node that owns its slot."""

    async def open(self) -> None:
        import redis.asyncio as redis
        from redis.crc import key_slot

        self.nodes = {}
        self._closed = False
        self._redis, self._slot = redis, key_slot
        one = redis.Redis(host=self.home, port=6379)
        self.owners = []
        for lo, hi, main, *_ in await one.execute_command("CLUSTER SLOTS"):
            self.owners.append((lo, hi, main[0].decode() if isinstance(main[0], bytes) else main[0]))
        await one.aclose()
        ready = []
        for topic in self.topics():
            up = asyncio.Event()
            ready.append(up)
            self.task(self._read(topic, up))
        for up in ready:
            await asyncio.wait_for(up.wait(), 10)

    def at(self, topic: str):
        slot = self._slot(topic.encode())
        host = next(h for lo, hi, h in self.owners if lo <= slot <= hi)
        if host not in self.nodes:
            self.nodes[host] = self._redis.Redis(host=host, port=6379, socket_connect_timeout=2)
        return self.nodes[host]

    async def _read(self, topic: str, up: asyncio.Event) -> None:
        while not self._closed:
            try:
                ps = self.at(topic).pubsub()
                await ps.execute_command("SSUBSCRIBE", topic)
                up.set()
                while True:
                    m = await ps.parse_response(block=True)
                    if m and m[0] in (b"smessage", "smessage"):
                        await self.on(m[2])
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.app.log("note", f"redis {type(error).__name__} {error}"[:100])
                await asyncio.sleep(0.05)

    async def send(self, value: str) -> None:
        topic = self.topic(value)
        await self.at(topic).execute_command("SPUBLISH", topic, value)

    async def close(self) -> None:
        self._closed = True
        await self.cancel()
        for r in self.nodes.values():
            await r.aclose()


class RedisStreams(Adapter):
    last: dict | None = None

    async def open(self) -> None:
        import redis.asyncio as redis

        self.r = redis.Redis(host=self.home, port=6379, socket_connect_timeout=2)
        if self.last is None:
            keys = self.topics() if self.opt.get("first") == "questions" else sorted(self.topics())
            self.last = dict.fromkeys(keys, "0-0")  # XREAD answers in the order of its keys
        if self.last:
            self.task(self._listen(self.r))

    async def _listen(self, r) -> None:
        while r is self.r:
            try:
                for name, entries in await r.xread(self.last, count=1000, block=1000) or []:
                    for at, fields in entries:
                        self.last[name.decode()] = at
                        await self.on(fields[b"v"])
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.app.log("note", f"redis {type(error).__name__}")
                await asyncio.sleep(0.05)

    async def send(self, value: str) -> None:
        await self.r.xadd(self.topic(value), {"v": value})

    async def close(self) -> None:
        r, self.r = self.r, None
        await self.cancel()
        await r.aclose()


class Rabbit(Adapter):
    pipelined = True

    async def open(self) -> None:
        import aio_pika

        self.p = aio_pika
        self.conn = await aio_pika.connect_robust(f"amqp://score:score@{self.home}/", reconnect_interval=0.3)
        self.ch = await self.conn.channel()
        self.ex = {
            t: await self.ch.declare_exchange(t, aio_pika.ExchangeType.FANOUT, durable=True) for t in self.every()
        }
        for t in self.topics():
            args = {"x-queue-type": "quorum"} if self.opt.get("quorum") else {}
            q = await self.ch.declare_queue(f"{self.role}-{t}", durable=True, arguments=args)
            await q.bind(self.ex[t])
            await q.consume(self._got)

    async def _got(self, message) -> None:
        await self.on(message.body)
        await message.ack()

    async def send(self, value: str) -> None:
        await self.ex[self.topic(value)].publish(
            self.p.Message(value.encode(), delivery_mode=2), routing_key="", timeout=5
        )

    async def close(self) -> None:
        await self.conn.close()


class Mqtt(Adapter):
    async def open(self) -> None:
        import paho.mqtt.client as mqtt

        self.qos = self.opt.get("qos", 0)
        up = threading.Event()
        self.c = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"score-{self.role}", clean_session=self.qos == 0
        )

        def connected(client, *_):
            for t in self.topics():
                client.subscribe("+/" + t if self.opt.get("origin") else t, self.qos)
            if not self.topics():
                up.set()

        self.c.on_connect = connected
        self.c.on_subscribe = lambda *_: up.set()
        self.c.on_message = lambda c, u, m: self.on_thread(m.payload)
        self.c.reconnect_delay_set(0.1, 0.5)
        self.c.connect(self.home, 1883, keepalive=20)
        self.c.loop_start()
        await asyncio.to_thread(up.wait, 10)

    def send_now(self, value: str) -> None:
        topic = self.topic(value)
        self.c.publish(f"{self.role}/{topic}" if self.opt.get("origin") else topic, value, self.qos)

    async def close(self) -> None:
        self.c.disconnect()
        await asyncio.to_thread(self.c.loop_stop)


class Postgres(Adapter):
    async def open(self) -> None:
        import asyncpg

        self._pg = asyncpg
        self._closed = False
        self.w = await self._connect()
        if self.topics():
            self.l = await self._connect()
            await self._subscribe()
            self.task(self._watch())
            if self.role == "B":
                self.task(self.answerer())

    async def _connect(self):
        return await self._pg.connect(host=self.home, port=5432, user="postgres", database="postgres", timeout=5)

    async def _subscribe(self) -> None:
        for t in self.topics():
            await self.l.add_listener(t, lambda c, pid, ch, payload: self.on_now(payload))

    async def _watch(self) -> None:
        while not self._closed:
            await asyncio.sleep(0.1)
            if self.l.is_closed():
                try:
                    self.l = await self._connect()
                    await self._subscribe()
                except Exception:
                    pass

    async def send(self, value: str) -> None:
        if self.w.is_closed():
            self.w = await self._connect()
        await self.w.execute("SELECT pg_notify($1, $2)", self.topic(value), value)

    async def close(self) -> None:
        self._closed = True
        await self.cancel()
        await self.w.close()
        if self.topics():
            await self.l.close()


class Zmq(Adapter):
    async def open(self) -> None:
        import zmq
        import zmq.asyncio

        self.ctx = zmq.asyncio.Context()
        self.pub = self.ctx.socket(zmq.PUB)
        self.pub.bind(f"tcp://{self.here}:5555")
        self.sub = self.ctx.socket(zmq.SUB)
        for t in self.topics():
            self.sub.subscribe(t + " ")
        for role, address in self.peers.items():
            if role != self.role:
                self.sub.connect(f"tcp://{address}:5555")
        self.task(self._listen())

    async def _listen(self) -> None:
        while True:
            await self.on((await self.sub.recv()).split(b" ", 1)[1])

    async def send(self, value: str) -> None:
        await self.pub.send(f"{self.topic(value)} {value}".encode())

    async def close(self) -> None:
        await self.cancel()
        self.pub.close(0)
        self.sub.close(0)
        self.ctx.term()


class Zenoh(Adapter):
    async def open(self) -> None:
        import zenoh

        c = zenoh.Config()
        c.insert_json5("scouting/multicast/enabled", "false")
        if self.opt.get("routers"):
            c.insert_json5("mode", '"client"')
            c.insert_json5("connect/endpoints", json.dumps([f"tcp/{self.home}:7447"]))
        else:
            c.insert_json5("mode", '"peer"')
            c.insert_json5("listen/endpoints", json.dumps([f"tcp/{self.here}:7447"]))
            c.insert_json5(
                "connect/endpoints", json.dumps([f"tcp/{x}:7447" for r, x in self.peers.items() if r != self.role])
            )
        self.s = await asyncio.to_thread(zenoh.open, c)
        self.subs = [
            self.s.declare_subscriber(t, lambda m: self.on_thread(m.payload.to_bytes())) for t in self.topics()
        ]
        reliable = {"reliability": zenoh.Reliability.RELIABLE}
        self.pubs = {t: self.s.declare_publisher(t, **reliable) for t in self.every()}

    def send_now(self, value: str) -> None:
        self.pubs[self.topic(value)].put(value.encode())

    async def close(self) -> None:
        await asyncio.to_thread(self.s.close)


class Dds(Adapter):
    async def open(self) -> None:
        from cyclonedds.core import Policy, Qos
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.pub import DataWriter
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic
        from cyclonedds.util import duration
        from scorecard.dds_types import Text

        self.Text = Text
        rules = [Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll]
        if self.opt.get("source"):
            rules.append(Policy.DestinationOrder.BySourceTimestamp)
        qos = Qos(*rules)
        self.dp = DomainParticipant(7)
        self.t = {t: Topic(self.dp, t, Text, qos=qos) for t in self.every()}
        self.w = {t: DataWriter(self.dp, self.t[t], qos=qos) for t in self.t}
        self.readers = [DataReader(self.dp, self.t[t], qos=qos) for t in self.topics()]
        self._stop = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        import time

        while not self._stop:
            got = False
            for reader in self.readers:
                for sample in reader.take(N=100):
                    if isinstance(sample, self.Text):
                        got = True
                        self.on_thread(sample.v)
            if not got:
                time.sleep(0.0005)

    def send_now(self, value: str) -> None:
        self.w[self.topic(value)].write(self.Text(value))

    async def close(self) -> None:
        self._stop = True
        await asyncio.to_thread(self._thread.join, 3)
        self.readers, self.w, self.t, self.dp = [], {}, {}, None


class Mesh(Adapter):
    """Plain TCP between all, one line a message: what one writes in an afternoon."""

    async def open(self) -> None:
        self.out: dict[str, asyncio.StreamWriter] = {}
        self._closed = False
        self.server = await asyncio.start_server(self._serve, self.here, 5600)
        for role, address in self.peers.items():
            if role != self.role:
                self.task(self._dial(role, address))

    async def _dial(self, role: str, address: str) -> None:
        while not self._closed:
            try:
                reader, writer = await asyncio.open_connection(address, 5600)
                self.out[role] = writer
                await reader.read()
            except OSError:
                pass
            self.out.pop(role, None)
            await asyncio.sleep(0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await self.on(line.strip())
        writer.close()

    async def send(self, value: str) -> None:
        for writer in list(self.out.values()):
            writer.write(value.encode() + b"\n")

    async def close(self) -> None:
        self._closed = True
        await self.cancel()
        self.server.close()
        for w in self.out.values():
            w.close()


class Sequencer(Adapter):
    """One process that repeats every line to all: the control that has a total order."""

    async def open(self) -> None:
        reader, self.writer = await asyncio.open_connection(self.home, 5601)
        self.task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if self.topics():
                await self.on(line.strip())

    async def send(self, value: str) -> None:
        self.writer.write(value.encode() + b"\n")

    async def close(self) -> None:
        await self.cancel()
        self.writer.close()


class Cpg(Adapter):
    """corosync's closed process groups."""

    async def open(self) -> None:
        class Name(ctypes.Structure):
            _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * 128))

        class Vector(ctypes.Structure):
            _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))

        deliver = ctypes.CFUNCTYPE(
            None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t
        )

        class Callbacks(ctypes.Structure):
            _fields_ = (("deliver", deliver), ("changed", ctypes.c_void_p))

        self.Vector, self.lib = Vector, ctypes.CDLL("libcpg.so.4")
        self.handle = ctypes.c_uint64()
        self.cb = Callbacks(deliver(lambda h, g, n, pid, m, size: self._got(ctypes.string_at(m, size))), None)
        for _attempt in range(100):
            code = self.lib.cpg_initialize(ctypes.byref(self.handle), ctypes.byref(self.cb))
            if code == 1:
                break
            await asyncio.sleep(0.1)
        else:
            raise OSError(f"cpg_initialize {code}")
        for _attempt in range(100):
            code = self.lib.cpg_join(
                self.handle, ctypes.byref(Name(len(self.topic("q").encode()), self.topic("q").encode()))
            )
            if code == 1:
                break
            await asyncio.sleep(0.1)
        else:
            raise OSError(f"cpg_join {code}")
        fd = ctypes.c_int()
        self.lib.cpg_fd_get(self.handle, ctypes.byref(fd))
        self.fd = fd.value
        asyncio.get_running_loop().add_reader(self.fd, self._ready)
        if self.role == "B":
            self.task(self.answerer())

    def _ready(self) -> None:
        code = self.lib.cpg_dispatch(self.handle, ctypes.c_int(2))
        if code not in (1, 6):
            self.app.log("note", f"cpg_dispatch {code}")
            asyncio.get_running_loop().remove_reader(self.fd)
            self.task(self._again())

    async def _again(self) -> None:
        self.lib.cpg_finalize(self.handle)
        await self.open()

    def _got(self, data: bytes) -> None:
        if self.topics():
            self.on_now(data)

    async def send(self, value: str) -> None:
        v = self.Vector(value.encode(), len(value))
        for _ in range(2000):
            code = self.lib.cpg_mcast_joined(self.handle, ctypes.c_int(2), ctypes.byref(v), ctypes.c_uint(1))
            if code != 6:
                break
            await asyncio.sleep(0.001)
        if code != 1:
            raise OSError(f"cpg_mcast_joined {code}")

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.fd)
        await self.cancel()
        self.lib.cpg_finalize(self.handle)


class Irc(Adapter):
    async def open(self) -> None:
        self._closed = False
        self._up = asyncio.Event()
        self.task(self._run())
        await asyncio.wait_for(self._up.wait(), 20)

    async def _run(self) -> None:
        while not self._closed:
            try:
                reader, self.w = await asyncio.open_connection(self.home, 6667)
                self.w.write(f"NICK n{self.role}\r\nUSER n 0 * :n\r\n".encode())
                while line := await reader.readline():
                    text = line.decode().rstrip("\r\n")
                    words = text.split(" ")
                    if words[0] == "PING":
                        self.w.write(f"PONG {words[1]}\r\n".encode())
                    elif words[1] == "001":
                        for t in self.every():
                            self.w.write(f"JOIN #{t}\r\n".encode())
                    elif words[1] == "366":
                        self._up.set()
                    elif words[1] == "PRIVMSG" and words[2][1:] in self.topics():
                        await self.on(text.split(" :", 1)[1])
            except OSError:
                pass
            await asyncio.sleep(0.2)

    async def send(self, value: str) -> None:
        self.w.write(f"PRIVMSG #{self.topic(value)} :{value}\r\n".encode())

    async def close(self) -> None:
        self._closed = True
        await self.cancel()
        self.w.close()


class Whence(Adapter):
    async def open(self) -> None:
        import whence

        common = {
            "listen": f"{self.here}:7001",
            "order": self.opt["order"],
            "secret": bytes(32),  # who listens in on these wires is not the question here
            "memory": self.cfg["log"] + ".memory",
        }
        if self.opt.get("directory"):
            common["directory"] = self.cfg["log"] + ".state"
            del common["memory"]
        first = f"{self.peers['A']}:7001"
        made = whence.create("score", **common) if self.role == "A" else whence.join("score", [first], **common)
        self._stack = contextlib.AsyncExitStack()
        self.cluster = await self._stack.enter_async_context(made)
        self.publisher = await self._stack.enter_async_context(self.cluster.publisher())
        self.task(self._listen())

    async def _listen(self) -> None:
        async for event in self.cluster.events():
            if self.topics() and event.origin != self.cluster.me:
                await self.on(event.payload)

    async def send(self, value: str) -> None:
        await self.publisher.publish(value.encode())

    async def close(self) -> None:
        await self.cancel()
        await self._stack.aclose()


ADAPTERS = {
    "nats": Nats,
    "jetstream": JetStream,
    "redis": RedisPubSub,
    "redis-sharded": RedisSharded,
    "redis-streams": RedisStreams,
    "rabbit": Rabbit,
    "mqtt": Mqtt,
    "postgres": Postgres,
    "zmq": Zmq,
    "zenoh": Zenoh,
    "dds": Dds,
    "mesh": Mesh,
    "sequencer": Sequencer,
    "cpg": Cpg,
    "irc": Irc,
    "whence": Whence,
}
