"""gpu_tok: a batch tokenizer that gives exactly the ids of Hugging Face `tokenizers`."""

from gpu_tok.batch import Padded, Ragged, TextBatch, TokenBatch
from gpu_tok.errors import (
    DefinitionError,
    DeviceError,
    FileError,
    GpuTokError,
    IdError,
    NotYetError,
    TextError,
    TextTypeError,
)

__version__ = "0.1.0"

__all__ = [
    "DefinitionError",
    "DeviceError",
    "FileError",
    "GpuTokError",
    "IdError",
    "NotYetError",
    "Padded",
    "Ragged",
    "TextBatch",
    "TextError",
    "TextTypeError",
    "TokenBatch",
    "Tokenizer",
]


def __getattr__(name: str) -> object:
    """Loads `Tokenizer` at the first use: numba takes half a second, and `gpu-tok --help` needs none."""
    if name == "Tokenizer":
        from gpu_tok.tokenizer import Tokenizer

        return Tokenizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
