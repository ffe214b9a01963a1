"""The systems: what each needs, how it is run, and the sentence in which its documentation promises or denies an order.

Layout `one`: questions and answers share a subject (topic, channel, stream, queue). `two`: C subscribes to two, over
one connection where the system has that.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scorecard.servers import JS, MESH, TRIO, Servers

from scorecard import servers as start

BOTH = ("one", "two")


@dataclass(frozen=True)
class Promise:
    """What the documentation says of order between *different* publishers."""

    says: str
    """Word for word."""
    source: str
    order: tuple[str, ...] = ()
    """The layouts for which that promises the question before the answer."""


@dataclass(frozen=True)
class System:
    """A system as its users run it."""

    key: str
    label: str
    adapter: str
    promise: Promise
    needs: tuple[str, ...] = ()
    """Programs, files, Python modules (`py:`) and npm packages (`js:`)."""
    get: str = ""
    """How to get what it needs."""
    servers: Servers | None = None
    after: Callable[[Path], None] | None = None
    """To do when all servers listen."""
    layouts: tuple[str, ...] = ("one",)
    opt: dict[str, object] = field(default_factory=dict)
    client: str = "py"
    """`py`, `erl`, `jgroups`, or `js:FILE`."""
    one_by_one: bool = False
    """The client of A has to be ready before the next is started."""
    single: bool = False
    """One server, at s. Otherwise A, B and C have a server, or are peers, at a, b and c."""
    rate: float = 200
    count: int = 400
    slow_from: str = ""
    """The other end of the link to c that is slow, cut or held; "": a, or s with one server."""
    patience: float = 4.0
    """Seconds without a delivery after which what is missing is lost: longer than the system's own timers. JetStream
    redelivers after 30 s."""

    def missing(self) -> list[str]:
        """What it needs and is not there."""
        return [each for each in self.needs if not _there(each)]


def _there(need: str) -> bool:
    kind, _, what = need.partition(":")
    if kind == "py":
        return importlib.util.find_spec(what) is not None
    if kind == "js":
        return shutil.which("node") is not None and (JS / "node_modules" / what).is_dir()
    if "*" in need:
        return any(Path("/").glob(need.lstrip("/")))
    return shutil.which(need) is not None or Path(need).exists()


def apt(what: str) -> str:
    return f"apt-get install --no-install-recommends {what}"


NPM = "Node 20 or later with npm, then make scorecard"
PIP = "make scorecard"
RABBIT = ("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server", "py:aio_pika")

NONE_FOUND = "(no sentence about the order of different publishers was found)"

WHENCE = Promise(
    "No member that asked for causal order ever sees an effect before its cause, whatever the network loses, repeats, "
    "delays or cuts, and whoever crashes, joins or leaves.",
    "README.md",
    ("one",),
)
MESH_CONTROL = Promise("Plain TCP between all, one line a message.", "scorecard/adapters.py")
TOTAL_CONTROL = Promise(
    "Every line goes to all clients in the order of its arrival.", "scorecard/sequencer.py", ("one",)
)
NATS = Promise(
    "There are no guarantees of message delivery order amongst multiple publishers.",
    "https://docs.nats.io/reference/faq",
)
JETSTREAM = Promise(
    "For writes (publications to a stream), the formal consistency model of NATS JetStream is Linearizable. On the "
    "read side (listening to or replaying messages from streams) the formal models don't really apply",
    "https://docs.nats.io/nats-concepts/jetstream",
)
REDIS = Promise(
    "Subscribers receive the messages in the order that the messages are published.",
    "https://redis.io/docs/manual/pubsub",
    BOTH,
)
REDIS_CLUSTER = Promise(
    "The cluster makes sure that published messages are forwarded as needed, so clients can subscribe to any channel "
    "by connecting to any one of the nodes.",
    "https://redis.io/commands/PUBLISH",
)
REDIS_STREAMS = Promise(
    "Streams help record events in the order they occur and then syndicate them for processing.",
    "https://redis.io/docs/latest/develop/data-types",
    ("one",),
)
RABBITMQ = Promise(
    "messages published in one channel, passing through one exchange and one queue and one outgoing channel will be "
    "received in the same order that they were sent",
    "https://www.rabbitmq.com/docs/semantics#ordering",
)
MQTT = Promise(
    "it MUST send PUBLISH packets to consumers (for the same Topic and QoS) in the order that they were received from "
    "any given Client",
    "MQTT 3.1.1, 4.6 [MQTT-4.6.0-6]",
)
POSTGRES = Promise(
    "It is also guaranteed that messages from different transactions are delivered in the order in which the "
    "transactions committed.",
    "https://www.postgresql.org/docs/15/sql-notify.html",
    BOTH,
)
ZEROMQ = Promise("Incoming routing strategy: Fair-queued", "zmq_socket(3), ZMQ_SUB")
ZENOH = Promise(NONE_FOUND, "https://zenoh.io/docs")
DDS = Promise(
    "BY_RECEPTION_TIMESTAMP indicates that, assuming the OWNERSHIP policy allows it, the latest received value for the "
    "instance should be the one whose value is kept. This is the default value.",
    "OMG DDS, DestinationOrder",
)
COROSYNC = Promise(
    "All processors must agree on the order of delivery. If a message is sent from two or more processes at about the "
    "same time, the delivery will occur in the same order to all processes.",
    "cpg_mcast_joined(3), CPG_TYPE_AGREED",
    ("one",),
)
ERLANG = Promise(
    "The only signal ordering guarantee given is the following: if an entity sends multiple signals to the same "
    "destination entity, the order is preserved",
    "ERTS User's Guide, Communication in Erlang",
)
JGROUPS = Promise("FIFO (default) should be fine", "the changelog of JGroups 2.12 (Debian)")
JGROUPS_TOTAL = Promise("Added total order SEQUENCER protocol.", "the changelog of JGroups 2.12 (Debian)", ("one",))
IRC = Promise(NONE_FOUND, "RFC 2810, 2812")
GOSSIPSUB = Promise(NONE_FOUND, "https://github.com/libp2p/specs, pubsub")
SOCKETIO = Promise(
    "Socket.IO does guarantee message ordering [...]: the events will always be received in the same order by the "
    "other side",
    "https://socket.io/docs/v4/delivery-guarantees",
)
YJS = Promise(
    "Document updates are commutative, associative, and idempotent. This means that you can apply them in any order "
    "and multiple times.",
    "https://docs.yjs.dev/api/document-updates",
)

SYSTEMS = {
    system.key: system
    for system in (
        # -- ours
        System("whence-causal", "whence, causal", "whence", WHENCE, opt={"order": "causal"}, one_by_one=True),
        System("whence-reliable", "whence, reliable", "whence", WHENCE, opt={"order": "reliable"}, one_by_one=True),
        System(
            "whence-directory",
            "whence, reliable, with a directory",
            "whence",
            WHENCE,
            opt={"order": "reliable", "directory": True},
            one_by_one=True,
        ),
        # -- the controls
        System("mesh", "plain TCP mesh (control)", "mesh", MESH_CONTROL),
        System(
            "sequencer",
            "one process that repeats to all (control)",
            "sequencer",
            TOTAL_CONTROL,
            servers=start.sequencer,
            single=True,
        ),
        # -- brokers
        System(
            "nats-1",
            "NATS core, 1 server",
            "nats",
            NATS,
            ("nats-server", "py:nats"),
            apt("nats-server"),
            start.nats(("s",), False),
            layouts=BOTH,
            single=True,
        ),
        System(
            "nats-cluster",
            "NATS core, cluster of 3",
            "nats",
            NATS,
            ("nats-server", "py:nats"),
            apt("nats-server"),
            start.nats(TRIO, False),
        ),
        System(
            "jetstream-1",
            "NATS JetStream, 1 server",
            "jetstream",
            JETSTREAM,
            ("nats-server", "py:nats"),
            apt("nats-server"),
            start.nats(("s",), True),
            layouts=BOTH,
            single=True,
            one_by_one=True,
            patience=34,
        ),
        System(
            "jetstream-cluster",
            "NATS JetStream, 3 replicas",
            "jetstream",
            JETSTREAM,
            ("nats-server", "py:nats"),
            apt("nats-server"),
            start.nats(TRIO, True),
            layouts=BOTH,
            opt={"replicas": 3},
            one_by_one=True,
            patience=34,
        ),
        System(
            "redis-1",
            "Redis pub/sub, 1 server",
            "redis",
            REDIS,
            ("redis-server", "py:redis"),
            apt("redis-server"),
            start.redis(("s",)),
            layouts=BOTH,
            single=True,
        ),
        System(
            "redis-cluster",
            "Redis Cluster pub/sub, 3 masters",
            "redis",
            REDIS_CLUSTER,
            ("redis-server", "py:redis"),
            apt("redis-server"),
            start.redis(TRIO, True),
            start.redis_join,
        ),
        System(
            "redis-streams",
            "Redis Streams, 1 server",
            "redis-streams",
            REDIS_STREAMS,
            ("redis-server", "py:redis"),
            apt("redis-server"),
            start.redis(("s",), aof=True),
            layouts=BOTH,
            single=True,
        ),
        System(
            "rabbitmq-1",
            "RabbitMQ, 1 server",
            "rabbit",
            RABBITMQ,
            RABBIT,
            apt("rabbitmq-server"),
            start.rabbit(("s",)),
            layouts=BOTH,
            single=True,
        ),
        System(
            "rabbitmq-quorum",
            "RabbitMQ cluster of 3, quorum queues",
            "rabbit",
            RABBITMQ,
            RABBIT,
            apt("rabbitmq-server"),
            start.rabbit(TRIO, cluster=True),
            start.rabbit_clustered,
            opt={"quorum": True},
            rate=100,
            count=200,
        ),
        System(
            "rabbitmq-federation",
            "RabbitMQ federation, 3 brokers",
            "rabbit",
            RABBITMQ,
            RABBIT,
            apt("rabbitmq-server"),
            start.rabbit(TRIO, "rabbitmq_federation"),
            start.rabbit_federated,
            rate=100,
            count=200,
        ),
        System(
            "mosquitto-1",
            "Mosquitto, 1 server, QoS 1",
            "mqtt",
            MQTT,
            ("mosquitto", "py:paho"),
            apt("mosquitto"),
            start.mosquitto(("s",), 1),
            layouts=BOTH,
            single=True,
            opt={"qos": 1},
        ),
        System(
            "mosquitto-bridges",
            "Mosquitto bridges, triangle, QoS 1",
            "mqtt",
            MQTT,
            ("mosquitto", "py:paho"),
            apt("mosquitto"),
            start.mosquitto(TRIO, 1, MESH),
            opt={"origin": True, "qos": 1},
        ),
        System(
            "postgres",
            "PostgreSQL LISTEN/NOTIFY",
            "postgres",
            POSTGRES,
            ("/usr/lib/postgresql/*/bin/postgres", "py:asyncpg"),
            apt("postgresql"),
            start.postgres,
            layouts=BOTH,
            single=True,
        ),
        # -- peers
        System("zeromq", "ZeroMQ PUB/SUB mesh", "zmq", ZEROMQ, ("py:zmq",), PIP),
        System("zenoh-peers", "Zenoh, 3 peers", "zenoh", ZENOH, ("py:zenoh",), PIP),
        System(
            "zenoh-routers",
            "Zenoh, 3 routers",
            "zenoh",
            ZENOH,
            ("py:zenoh",),
            PIP,
            start.routers,
            opt={"routers": True},
        ),
        System("dds", "Cyclone DDS, reliable", "dds", DDS, ("py:cyclonedds",), PIP),
        System(
            "corosync",
            "corosync CPG, 3 nodes",
            "cpg",
            COROSYNC,
            ("corosync", "/usr/lib/*/libcpg.so.4"),
            apt("corosync libcpg4"),
            start.corosync,
        ),
        System(
            "erlang",
            "Erlang distribution, 3 nodes",
            "erlang",
            ERLANG,
            ("erl", "erlc"),
            apt("erlang-base"),
            client="erl",
        ),
        System(
            "jgroups",
            "JGroups 2.12, TCP",
            "jgroups",
            JGROUPS,
            ("javac", "/usr/share/java/jgroups.jar"),
            apt("libjgroups-java default-jdk-headless"),
            client="jgroups",
            opt={"order": "fifo"},
            one_by_one=True,
        ),
        System(
            "jgroups-sequencer",
            "JGroups 2.12, TCP and SEQUENCER",
            "jgroups",
            JGROUPS_TOTAL,
            ("javac", "/usr/share/java/jgroups.jar"),
            apt("libjgroups-java default-jdk-headless"),
            client="jgroups",
            opt={"order": "total"},
            one_by_one=True,
        ),
        System(
            "irc", "IRC (ngircd), tree of 3", "irc", IRC, ("ngircd",), apt("ngircd"), start.ircd, rate=100, count=200
        ),
        System(
            "gossipsub",
            "libp2p gossipsub (js), 3 peers",
            "gossipsub",
            GOSSIPSUB,
            ("js:@libp2p/gossipsub",),
            NPM,
            client="js:gossipsub.mjs",
            rate=50,
            count=100,
        ),
        # -- documents and sockets
        System(
            "socketio",
            "Socket.IO, 3 servers, Redis adapter",
            "socketio",
            SOCKETIO,
            ("js:socket.io", "redis-server"),
            f"{NPM}; {apt('redis-server')}",
            start.socketio("pubsub"),
            client="js:socketio.mjs",
            slow_from="s",
        ),
        System(
            "yjs-server",
            "Yjs, y-websocket server",
            "yjs",
            YJS,
            ("js:y-websocket",),
            NPM,
            start.ywebsocket,
            client="js:yjs.mjs",
            single=True,
        ),
        System(
            "yjs-mesh",
            "Yjs, updates over a mesh",
            "yjs-mesh",
            YJS,
            ("js:yjs",),
            NPM,
            client="js:yjs.mjs",
            opt={"mesh": True},
        ),
    )
}
