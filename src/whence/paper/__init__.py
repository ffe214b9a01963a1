"""The experiments of the papers, each with the claims it must show."""
