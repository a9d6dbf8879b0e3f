"""The steps of gpu_tok in numba: the CPU path. Each has the same stem here, in `gpu_tok/` and in `tests/`."""
