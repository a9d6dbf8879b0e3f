"""The errors of gpu_tok. Each names the place, the finding and the way on."""

from __future__ import annotations


class GpuTokError(Exception):
    """Base of all errors that gpu_tok raises on purpose.

    `hint` says what to do next; it is printed on a line of its own.
    """

    def __init__(self, finding: str, hint: str | None = None) -> None:
        super().__init__(finding if hint is None else f"{finding}\nhint: {hint}")
        self.finding = finding
        self.hint = hint


class DefinitionError(GpuTokError, ValueError):
    """A `tokenizer.json` that cannot be used, or not as asked."""


class TextError(GpuTokError, ValueError):
    """A text that cannot be encoded; `row` is its index in the batch, `detail` the finding without it."""

    def __init__(self, row: int, finding: str, hint: str | None = None) -> None:
        super().__init__(f"text {row}: {finding}", hint)
        self.row = row
        self.detail = finding

    def in_row(self, row: int) -> TextError:
        """The same error of another row: of the text that a chunk came from."""
        return type(self)(row, self.detail, self.hint)


class TextTypeError(TextError, TypeError):
    """An element of a batch that is neither `str` nor `bytes`."""


class IdError(GpuTokError, ValueError):
    """Ids that cannot be decoded; says which row."""


class DeviceError(GpuTokError, RuntimeError):
    """A device that was asked for and cannot be had."""


def no_memory(device: str, error: MemoryError) -> DeviceError:
    """The error for a device, described in words, that has run out of memory."""
    said = f": {error}" if str(error) else ""
    return DeviceError(
        f"{device} has no memory left{said}", 'free memory there, pass fewer rows at once, or use device="cpu"'
    )


class FileError(GpuTokError, ValueError):
    """A data file that cannot be read or written; says where."""


class NotYetError(GpuTokError, NotImplementedError):
    """Something the reference does and gpu_tok does not do yet."""
