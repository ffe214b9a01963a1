"""The protocol, pure: no I/O, no clock, no thread, no global randomness.

`member.py` is one member of one cluster. It composes three parts: `cast` spreads things without order and knows who is
there, `ring` decides who owns a ticket and so may publish, `order` delivers, holds back or recovers. `wire.py` is how
messages look as bytes. `ports.py` lists what goes into a member and what comes out; `config.py` has its settings;
`recorder.py` turns its outputs into trace rows. The caller passes `now` in nanoseconds and a `random.Random`: the same
seed gives the same trace. `live` and `lab` run these objects; nothing here knows either.
"""
