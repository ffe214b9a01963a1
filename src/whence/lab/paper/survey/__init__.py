"""The SURVEY's examples and its Table 1."""
