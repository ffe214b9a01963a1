"""Whether every member got what its order promises. Pure, and knows only the trace: an audit must not trust what it
audits."""
