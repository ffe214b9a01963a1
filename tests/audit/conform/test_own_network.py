"""`--own-network`: nodes with sockets of their own, on whose links the kit has proxies."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from whence.audit.conform import FAIL, NOT_SUPPORTED, PASS, SCENARIOS, ConformReport, ConformSettings, run_suite
from whence.audit.conform.network import Network, Proxies
from whence.audit.judge import judge
from whence.audit.trace import read

ROOT = Path(__file__).parents[3]
EXAMPLE = [sys.executable, str(ROOT / "examples" / "conform_tcp.py")]
BROKEN = [sys.executable, str(Path(__file__).parent / "broken_tcp.py")]
PATIENT = ConformSettings(timeout_s=90, hold_s=2, start_s=120, own_network=True)


def suite(command: list[str], only: tuple[str, ...] = (), trace: Path | None = None) -> ConformReport:
    return asyncio.run(run_suite(command, PATIENT, only, trace))


def test_the_example_passes_what_proxies_can_show(tmp_path: Path) -> None:
    report = suite(EXAMPLE, trace=tmp_path)
    assert report.error is None
    told = {v.scenario: v.verdict for v in report.verdicts}
    assert told == dict.fromkeys(SCENARIOS, NOT_SUPPORTED) | {"triangle": PASS, "partition-heal": PASS}, report
    assert not [note for v in report.verdicts for note in v.notes]  # the answer came, and the question did not
    for name in ("triangle", "partition-heal"):
        assert judge(read(tmp_path / f"{name}.jsonl")).ok
    (duplicate,) = (v for v in report.verdicts if v.scenario == "duplicate")
    assert duplicate.reasons == ["needs datagrams, which the system does not claim, or a proxy cannot show"]


def test_one_that_delivers_at_once_is_told_apart(tmp_path: Path) -> None:
    (verdict,) = suite([*BROKEN, "at-once"], ("triangle",), tmp_path).verdicts
    assert verdict.verdict == FAIL
    assert verdict.reasons[0].startswith("causal: n3 delivered answer before question"), verdict
    found = judge(read(tmp_path / "triangle.jsonl"))
    assert not found.ok and found.total.inverted == 1


def test_what_was_not_shown_is_not_passed() -> None:
    report = suite([*BROKEN, "no-address"], ("triangle",))
    assert report.error is not None and "n1 listens at None" in report.error and "`address`" in report.error
    impatient = ConformSettings(timeout_s=2, hold_s=1, start_s=120, own_network=True)
    (verdict,) = asyncio.run(run_suite([*BROKEN, "past"], impatient, ("triangle",))).verdicts
    assert verdict.verdict == NOT_SUPPORTED and "nothing came through the kit's proxies" in verdict.reasons[0]


def test_a_held_connection_keeps_its_bytes_and_their_order() -> None:
    """Also its end, and what comes after it is let go; the other direction is free all the time."""

    async def main() -> None:
        network = Network(lambda dest, text: None)
        proxies = Proxies(["n1", "n2"], network, partial(failed.append))
        got, over = bytearray(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")
            while data := await reader.read(1000):
                got.extend(data)
            over.set()
            writer.close()

        await proxies.open()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = proxies.peers("n1")["n2"].split(":")
        network.set("hold", [("n1", "n2")])
        reader, writer = await asyncio.open_connection(host, port)
        proxies.listens("n2", "{}:{}".format(*server.sockets[0].getsockname()))  # it started after it was dialled
        assert await reader.readexactly(5) == b"hello"
        sent = bytes(range(256)) * 1000
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
        while len(network._held) < 2 or network._held[-1][1].func.__name__ != "_end":  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        assert not got and not over.is_set()
        network.release([("n1", "n2")])
        await over.wait()
        assert bytes(got) == sent
        writer.close()
        await proxies.close()
        server.close()

    failed: list[object] = []
    asyncio.run(asyncio.wait_for(main(), 60))
    assert failed == []
