"""Compiled CUDA kernels without a GPU: to PTX and machine code (`compiling`)."""
