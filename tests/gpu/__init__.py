"""CUDA kernels: on a GPU, in numba's simulator, and compiled without either."""
