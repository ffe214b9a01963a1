"""How large anything from a peer may be. A length beyond its cap is refused; nothing is allocated on a peer's word."""

from __future__ import annotations

import msgspec

from whence.errors import ConfigError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Caps on what a peer may send. All members of a cluster need the same ones: what one may publish every other
    must accept, or it cuts off whoever forwards it.

    The codec checks the length in bytes first. Decoding a message of `b` bytes builds at most about `32 b` bytes of
    objects (the worst cases are very short strings and clock entries), so `max_message_bytes` bounds the memory of one
    message, too. The caps on counts then keep one well-formed message from filling a room's tables.
    """

    max_message_bytes: int = 4 << 20
    """Bytes of one message, datagram or stream, header included. A datagram cannot pass 65,507 anyway; the streams'
    large messages are snapshots (`max_state_bytes` plus the member list) and recovered frames. A stream decoder holds
    at most this and the 4 bytes of a length. Higher: larger states in one piece, and more memory that a hostile peer
    can make a member hold (per connection)."""

    max_items: int = 4096
    """Frames and news in one message. The papers send 20 a gossip message; recovery answers with more."""

    max_members: int = 65_536
    """Member ids in one message: a whole full view in a snapshot; gossip carries about 10 (papers)."""

    max_tickets: int = 1024
    """Entries of a vector clock, hence of every table per ticket. `n` of the cluster is checked by the member."""

    max_entries: int = 4096
    """R: entries of an (N, R, K) clock. Its keys are at most as many."""

    max_owners: int = 8192
    """Owners in one message of a cluster without tickets: cursors in a snapshot, rows of a digest."""

    max_stamp_bytes: int = 1 << 20
    """Bytes of a mechanism's control information in a frame, or of its state in a snapshot. The first generation
    carries whole messages there (`SurveyConfig.max_carried_bytes`); all others need far less."""

    max_ranges: int = 4096
    """Ranges in one RECOVER or its answer; lists of predecessors in one message of the ring."""

    max_tenures: int = 65_536
    """Rows of a table that has one per tenure: orphans beside a vector, tails and owners in a snapshot. At least the
    number of tickets times the tenures of one that are remembered (`CctClock.MAX_TAILS`)."""

    max_voters: int = 33
    """Voters of one council: `2k+1` with the largest k."""

    max_payload_bytes: int = 1 << 20
    """Bytes of one event's payload."""

    max_frame_bytes: int = 2 << 20
    """Bytes of one frame's body: all its payloads, encoded. At least `max_payload_bytes` + 8."""

    max_frame_events: int = 4096
    """Events in one frame. More make better use of a message, and a larger unit of loss and recovery."""

    max_news_bytes: int = 8192
    """Bytes of the body of a News: the largest names every ticket once."""

    max_name_bytes: int = 255
    """Bytes of a member id or a cluster's name. The packet header has one length byte for each: at most 255."""

    max_text_bytes: int = 512
    """Bytes of a token or a reason. A token is a member id and a number."""

    max_state_bytes: int = 3 << 20
    """Bytes of the application's state in a snapshot. Must leave room for the clock and the member list within
    `max_message_bytes`."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"Limits.{name} must be at least 1, not {getattr(self, name)}")
        if self.max_name_bytes > 255:
            raise ConfigError(f"Limits.max_name_bytes must be at most 255, not {self.max_name_bytes}")
        if self.max_frame_bytes < self.max_payload_bytes + 8:
            raise ConfigError("Limits.max_frame_bytes must be at least max_payload_bytes + 8")


DEFAULT = Limits()
"""The limits of a cluster that sets none."""
