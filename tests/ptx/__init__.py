"""Compiled CUDA kernels without a GPU: to PTX and machine code (`compiling`), and run on the CPU (`execute`).

`reading` makes dataclasses of the text, `translate` makes C of them. What each opcode means stands in `integers`,
`floats`, `conversions`, `memory`, `control` and `arithmetic.h`; threads and their meetings in `machine.h`, `launch.h`.
"""
