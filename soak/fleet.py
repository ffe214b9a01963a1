"""Tickets owned by two members at the same time."""

from __future__ import annotations

from whence.trace import Row


def overlapping(rows: list[Row], ended: dict[str, int]) -> tuple[list[str], int]:
    """Tenures of one ticket by two members that overlap in time, and the number of all tenures. A tenure begins with
    the `owner` row and ends with `lost` or `released`, with the leaving or the death of its member, else never. All
    processes of a soak read the same clock."""
    never = 1 << 62
    tenures: dict[int, list[tuple[int, int, str]]] = {}
    open_: dict[tuple[str, int], int] = {}

    def close(member: str, ticket: int, t: int) -> None:
        began = open_.pop((member, ticket), None)
        if began is not None:
            tenures.setdefault(ticket, []).append((began, t, member))

    for row in sorted(rows, key=lambda r: (r.member, r.lseq)):
        if row.kind == "ticket" and row.ticket is not None:
            change = (row.reason or "").split(" ", 1)[0]
            if change == "owner":
                open_.setdefault((row.member, row.ticket), row.t_ns)
            elif change in ("lost", "released"):
                close(row.member, row.ticket, row.t_ns)
        elif row.kind in ("leave", "crash"):
            for member, ticket in list(open_):
                if member == row.member:
                    close(member, ticket, row.t_ns)
    for member, ticket in list(open_):
        close(member, ticket, ended.get(member, never))
    found: list[str] = []
    for ticket, of in sorted(tenures.items()):
        of.sort()
        latest = of[0]
        for this in of[1:]:
            if this[0] < latest[1]:
                early = (latest[1] - this[0]) / 1e6
                found.append(f"ticket {ticket}: {this[2]} owned it {early:.3f} ms before {latest[2]} had lost it")
            if this[1] > latest[1]:
                latest = this
    return found, sum(map(len, tenures.values()))
