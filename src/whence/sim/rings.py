"""Ring invariants, for now unchecked."""
from __future__ import annotations
class Rings:
    def seated(self, seat): pass
    def unseated(self, seat): pass
    def stepped(self, seat, event, outs, now): return None
