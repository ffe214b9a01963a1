"""Every mechanism of the SURVEY (docs/survey.md) under one protocol: `Mechanism`, driven by `Process`.

| file | what |
|---|---|
| counts, base, process | processes as numbers; the protocol of a mechanism; one process that holds back and delivers |
| first, identifiers, vector, interval, physical, delta | the mechanisms |
| registry, codec | mechanisms by name; their bytes |
"""
