"""`tokenizer.json` -> flat tables. NumPy only; the one home of the file format."""
