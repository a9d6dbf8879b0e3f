"""Readers and writers of data sets: one module a format, all of them streams in bounded memory."""
