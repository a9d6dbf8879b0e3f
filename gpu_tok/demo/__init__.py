"""A small tokenizer and sample texts of this project's own, for `gpu-tok demo` and the tests."""
