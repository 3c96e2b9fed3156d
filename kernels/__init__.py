"""Numba kernels: free functions that take arrays and write into arrays.

Installed as ``pgbm_plugin.kernels``. Nothing here is imported until the first model is wrapped, because importing
numba costs more than importing the rest of the package.
"""
