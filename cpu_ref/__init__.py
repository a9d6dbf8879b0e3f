"""The steps of gpu_tok in numba: the CPU path, and the reference that the GPU path is checked against.

Each step has the same stem here, in `gpu_tok/`, in `kernels/` and in `tests/`.
"""
