"""Examples: run each as a script, or those of `paper` as modules, ``python -m examples.paper.table5``."""
