"""The data pipeline on Spark: from raw traces to verdicts, metrics and sweeps. It never imports the protocol."""
