"""What `gpu_check.py` does on a machine with a GPU, part by part."""
