"""`tokenizer.json` -> flat tables. NumPy, but for the trie's builder; the one home of the file format."""
