"""Every mechanism of the SURVEY (spec section 6) under one protocol: `Mechanism`, driven by `Process`.

| file | what |
|---|---|
| base, process | the protocol of a mechanism; one process that holds back and delivers |
| first, identifiers, vector, interval, physical, delta, probabilistic | the mechanisms |
| unicast | causal order for single destinations |
| registry, codec | mechanisms by name; their bytes |
| wires | the bytes of the protocols below |
| lossy | any mechanism over links that lose: recovery, digests, snapshots |
| reliable | any mechanism over views: P1-P4, uniform delivery |
| subgroup, interconnect, daisy | subgroups joined by servers: over FIFO links, over a causal multicast |
| open | who is no member publishes through one |
"""

from whence.order.survey.base import (
    Id,
    Mechanism,
    Message,
    ProcessId,
    Range,
    Stamp,
    State,
    Wait,
    control_bytes,
)
from whence.order.survey.codec import Codec
from whence.order.survey.delta import DeltaCausal, DeltaStamp
from whence.order.survey.first import Carried, FirstGeneration, FirstStamp, sequence
from whence.order.survey.identifiers import Identifiers, IdStamp
from whence.order.survey.interval import IntervalStamp, IntervalTree, shares
from whence.order.survey.physical import Physical, TimeStamp
from whence.order.survey.process import Process, ProcessStats
from whence.order.survey.registry import IN_THE_STACK, MECHANISMS, SurveyConfig, make
from whence.order.survey.vector import CompactMulticast, CompactStamp, CompactUnicast, VectorClock, VectorStamp

__all__ = [
    "IN_THE_STACK",
    "MECHANISMS",
    "Carried",
    "Codec",
    "CompactMulticast",
    "CompactStamp",
    "CompactUnicast",
    "DeltaCausal",
    "DeltaStamp",
    "FirstGeneration",
    "FirstStamp",
    "Id",
    "IdStamp",
    "Identifiers",
    "IntervalStamp",
    "IntervalTree",
    "Mechanism",
    "Message",
    "Physical",
    "Process",
    "ProcessId",
    "ProcessStats",
    "Range",
    "Stamp",
    "State",
    "SurveyConfig",
    "TimeStamp",
    "VectorClock",
    "VectorStamp",
    "Wait",
    "control_bytes",
    "make",
    "sequence",
    "shares",
]
