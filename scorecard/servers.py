"""How the servers are started: at which places, with which configuration (defaults, but for addresses)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from scorecard.switch import ADDRESS, enter

ROOT = Path(__file__).resolve().parent.parent
JS = ROOT / "build" / "scorecard" / "js"
TRIO = ("a", "b", "c")


@dataclass
class Server:
    """One server."""

    place: str
    argv: list[str]
    port: int
    """It is ready when something listens here; 0: after some seconds."""
    env: dict[str, str] = field(default_factory=dict)
    stop: int = signal.SIGTERM


Servers = Callable[[Path], list[Server]]
"""Folder for configuration and data -> servers."""


def inside(place: str, *argv: str, timeout: float = 60, env: dict | None = None) -> str:
    done = subprocess.run(
        [*enter(place), *argv], capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}
    )
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: {done.stdout[-300:]} {done.stderr[-600:]}")
    return done.stdout


def nats(places: tuple[str, ...], js: bool) -> Servers:
    def make(folder: Path) -> list[Server]:
        out = []
        for p in places:
            text = f'listen: "{ADDRESS[p]}:4222"\nserver_name: n-{p}\n'
            if js:
                text += f'jetstream {{ store_dir: "{folder}/js-{p}" }}\n'
            if len(places) > 1:
                routes = ", ".join(f'"nats://{ADDRESS[x]}:6222"' for x in places)
                text += f'cluster {{ name: score, listen: "{ADDRESS[p]}:6222", routes: [{routes}] }}\n'
            (folder / f"nats-{p}.conf").write_text(text)
            out.append(Server(p, ["nats-server", "-c", str(folder / f"nats-{p}.conf")], 4222))
        return out

    return make


def redis(places: tuple[str, ...], cluster: bool = False, aof: bool = False) -> Servers:
    def make(folder: Path) -> list[Server]:
        out = []
        for p in places:
            d = folder / f"redis-{p}"
            d.mkdir(exist_ok=True)
            argv = [
                "redis-server",
                "--port",
                "6379",
                "--bind",
                ADDRESS[p],
                "--dir",
                str(d),
                "--save",
                "",
                "--protected-mode",
                "no",
                "--appendonly",
                "yes" if aof else "no",
            ]
            if cluster:
                argv += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]
            out.append(Server(p, argv, 6379))
        return out

    return make


def redis_join(folder: Path) -> None:
    inside(
        "a",
        "redis-cli",
        "-h",
        ADDRESS["a"],
        "--cluster",
        "create",
        *[f"{ADDRESS[p]}:6379" for p in TRIO],
        "--cluster-yes",
    )
    for _ in range(60):
        if all("cluster_state:ok" in inside(p, "redis-cli", "-h", ADDRESS[p], "cluster", "info") for p in TRIO):
            return
        time.sleep(0.25)
    raise RuntimeError("redis cluster is not ok")


def rabbit(places: tuple[str, ...], plugins: str = "", cluster: bool = False) -> Servers:
    def make(folder: Path) -> list[Server]:
        out = []
        program = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
        for p in places:
            d = folder / f"rabbit-{p}"
            d.mkdir(exist_ok=True)
            (d / ".erlang.cookie").write_text("SCORECARDCOOKIE")
            (d / ".erlang.cookie").chmod(0o400)
            text = "loopback_users = none\ndefault_user = score\ndefault_pass = score\n"
            text += f"listeners.tcp.1 = {ADDRESS[p]}:5672\n"
            if cluster:
                text += "cluster_formation.peer_discovery_backend = classic_config\n"
                text += "".join(
                    f"cluster_formation.classic_config.nodes.{i} = rabbit@{ADDRESS[x]}\n"
                    for i, x in enumerate(places, 1)
                )
            (d / "rabbitmq.conf").write_text(text)
            (d / "enabled_plugins").write_text(f"[{plugins}].\n")
            out.append(Server(p, [str(program)], 5672, rabbit_env(folder, p)))
        return out

    return make


def rabbit_env(folder: Path, p: str) -> dict[str, str]:
    d = folder / f"rabbit-{p}"
    return {
        "HOME": str(d),
        "RABBITMQ_NODENAME": f"rabbit@{ADDRESS[p]}",
        "RABBITMQ_USE_LONGNAME": "true",
        "RABBITMQ_MNESIA_BASE": str(d),
        "RABBITMQ_LOG_BASE": str(d),
        "RABBITMQ_CONFIG_FILE": str(d / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(d / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(d / "pid"),
        "RABBITMQ_CONF_ENV_FILE": str(d / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
    }


def rabbitctl(folder: Path, p: str, *args: str) -> str:
    ctl = next(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmqctl"))
    return inside(p, str(ctl), *args, env=rabbit_env(folder, p))


def rabbit_clustered(folder: Path) -> None:
    for p in TRIO:
        rabbitctl(folder, p, "await_online_nodes", "3", "--timeout", "60")


def rabbit_federated(folder: Path) -> None:
    for p in TRIO:
        rabbitctl(
            folder, p, "set_cluster_name", f"score-{p}"
        )  # all have one host name here; upstream queues are named by it
    for p in TRIO:
        for x in TRIO:
            if x != p:
                value = json.dumps({"uri": f"amqp://score:score@{ADDRESS[x]}", "max-hops": 1})
                rabbitctl(folder, p, "set_parameter", "federation-upstream", f"from-{x}", value)
        rabbitctl(
            folder,
            p,
            "set_policy",
            "fed",
            "^(room|questions|answers)-",
            '{"federation-upstream-set":"all"}',
            "--apply-to",
            "exchanges",
        )


def mosquitto(places: tuple[str, ...], qos: int, links: tuple[tuple[str, str], ...] = ()) -> Servers:
    """links: (from, to) of the bridges. Each passes on what clients of `from` (or beyond it, in a tree) publish."""

    def make(folder: Path) -> list[Server]:
        out = []
        for p in places:
            d = folder / f"mosquitto-{p}"
            d.mkdir(exist_ok=True)
            d.chmod(0o777)
            text = f"listener 1883 {ADDRESS[p]}\nallow_anonymous true\nuser root\n"
            text += f"persistence true\npersistence_location {d}/\n"
            for x, y in links:
                if x == p:
                    text += (
                        f"connection {x}-{y}\naddress {ADDRESS[y]}:1883\ntopic {x.upper()}/# out {qos}\n"
                        f"restart_timeout 1\ncleansession false\nnotifications false\n"
                    )
            (folder / f"mosquitto-{p}.conf").write_text(text)
            out.append(Server(p, ["mosquitto", "-c", str(folder / f"mosquitto-{p}.conf")], 1883))
        return out

    return make


def postgres(folder: Path) -> list[Server]:
    bin_ = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    d = folder / "pg"
    d.mkdir(exist_ok=True)
    shutil.chown(d, "postgres", "postgres")
    for up in (folder, folder.parent):
        up.chmod(0o755)
    drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    if not (d / "PG_VERSION").exists():
        subprocess.run([*drop, str(bin_ / "initdb"), "-D", str(d), "-A", "trust"], check=True, capture_output=True)
        with (d / "pg_hba.conf").open("a") as f:
            f.write("host all all 10.77.0.0/24 trust\n")
    return [
        Server(
            "s",
            [
                *drop,
                str(bin_ / "postgres"),
                "-D",
                str(d),
                "-c",
                f"listen_addresses={ADDRESS['s']}",
                "-c",
                f"unix_socket_directories={d}",
            ],
            5432,
            stop=signal.SIGINT,
        )
    ]  # "fast"; SIGTERM waits for the clients


def corosync(folder: Path) -> list[Server]:
    out = []
    nodes = "".join(f"node {{\nnodeid: {i}\nname: {p}\nring0_addr: {ADDRESS[p]}\n}}\n" for i, p in enumerate(TRIO, 1))
    for p in TRIO:
        d = folder / f"corosync-{p}"
        d.mkdir(exist_ok=True)
        (d / "corosync.conf").write_text(
            "totem {\nversion: 2\ncluster_name: score\ntransport: udpu\ncrypto_cipher: none\ncrypto_hash: none\n}\n"
            f"nodelist {{\n{nodes}}}\nquorum {{\nprovider: corosync_votequorum\n}}\n"
            f"logging {{\nto_logfile: yes\nlogfile: {d}/log\nto_syslog: no\n}}\nsystem {{\nstate_dir: {d}\n}}\n"
        )
        own = "mount -t tmpfs none /run && exec corosync -f -c " + str(d / "corosync.conf")  # its lock file is in /run
        out.append(Server(p, ["unshare", "-m", "sh", "-c", own], 0))
    return out


def routers(folder: Path) -> list[Server]:
    return [
        Server(
            p, [sys.executable, "-m", "scorecard.zenoh_router", ADDRESS[p], *[ADDRESS[x] for x in TRIO if x != p]], 7447
        )
        for p in TRIO
    ]


def socketio(adapter: str) -> Servers:
    def make(folder: Path) -> list[Server]:
        return [
            *redis(("s",))(folder),
            *[Server(p, ["node", f"{JS}/socketio_server.mjs", ADDRESS[p], ADDRESS["s"], adapter], 3000) for p in TRIO],
        ]

    return make


def ywebsocket(folder: Path) -> list[Server]:
    return [
        Server(
            "s",
            ["node", f"{JS}/node_modules/y-websocket-server/bin/server.cjs"],
            1234,
            {"HOST": ADDRESS["s"], "PORT": "1234"},
        )
    ]


def ircd(folder: Path) -> list[Server]:
    out = []
    for p in TRIO:
        text = (
            f"[Global]\nName = {p}.irc.test\nInfo = score\nListen = {ADDRESS[p]}\nPorts = 6667\nServerUID = root\n"
            "ServerGID = root\nMotdPhrase = hi\nAdminInfo1 = x\nAdminInfo2 = x\nAdminEMail = x@irc.test\n"
            "[Limits]\nMaxConnectionsIP = 0\nMaxJoins = 0\nConnectRetry = 1\nMaxPenaltyTime = 0\n[Options]\n"
            "DNS = no\nIdent = no\nPAM = no\nSyslogFacility = local0\n"
        )
        for x in TRIO:
            if x != p and "b" in (x, p):  # a tree: a - b - c
                text += (
                    f"[Server]\nName = {x}.irc.test\nMyPassword = pw\nPeerPassword = pw\n"
                    f"Passive = {'no' if p != 'b' else 'yes'}\n"
                    f"Host = {ADDRESS[x]}\nPort = 6667\n"
                )
        (folder / f"ircd-{p}.conf").write_text(text)
        (folder / f"ircd-{p}.conf").chmod(0o644)
        out.append(Server(p, ["ngircd", "-n", "-f", str(folder / f"ircd-{p}.conf")], 6667))
    return out


def sequencer(folder: Path) -> list[Server]:
    return [Server("s", [sys.executable, "-m", "scorecard.sequencer", ADDRESS["s"]], 5601)]


MESH = tuple((x, y) for x in TRIO for y in TRIO if x != y)
