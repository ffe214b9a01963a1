"""Audits of traces of any size, with Spark and without. What people use is exported by `whence.audit`."""
