"""Measurements, each a module to run: ``python -m benchmarks.tune``."""

import os

# One core is one core. BLAS reads this when NumPy is imported, which is after this line; a value that is set stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
