"""Rooms for browsers: an ASGI application whose worker processes are members of one cluster (docs/web.md).

    rooms = whence.web.rooms(whence.join("chat", contacts, secret=..., order="reliable"), authorize=authorize)
    app.mount("/rooms", rooms)

Clients of any worker are in the same rooms: events in causal order to the last hop, objects, and who is there. The
client for browsers and Node is `whence.js`.
"""

from whence.exports import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "app": "Visit Rights Rooms anyone rooms",
        "words": "CloseCode",
    },
)

__all__ = ["CloseCode", "Rights", "Rooms", "Visit", "anyone", "rooms"]
