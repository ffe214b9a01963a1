"""Every mechanism of the SURVEY (docs/survey.md) under one protocol: `Mechanism`, driven by `Process`.

| file | what |
|---|---|
| base, process | the protocol of a mechanism; one process that holds back and delivers |
| first, identifiers, vector, interval, physical, delta | the mechanisms |
| registry, codec | mechanisms by name; their bytes |
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
from whence.order.survey.registry import MECHANISMS, SurveyConfig, make
from whence.order.survey.vector import CompactMulticast, CompactStamp, CompactUnicast, VectorClock, VectorStamp

__all__ = [
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
