"""What happened, and was it right.

`trace` reads and writes what members did, one row a step. `judge` says from the rows alone whether each order kept its
promise; `spark` does that for files and DataFrames of any size; `report` draws the page. `history` checks what clients
of a database saw; `conform` tests the causal broadcast of any system. Nothing here imports the protocol: an audit must
not trust what it audits.
"""
