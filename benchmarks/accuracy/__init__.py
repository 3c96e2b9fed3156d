"""Probabilistic accuracy on the paper's data sets: ``python -m benchmarks.accuracy --data DIR``."""
