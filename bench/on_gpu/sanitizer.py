"""A small batch under NVIDIA's compute-sanitizer: does a kernel touch what is not its own, do two race."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpu_tok.batch import TextBatch
from gpu_tok.nvrtc import PREFIXES
from on_gpu import compare
from on_gpu.parity import encode_by
from on_gpu.setting import Setting

TOOLS = ("memcheck", "racecheck")
LINES = 20  # first and last ones, of what the tool said
BATCH_TEXTS = 40
TEXT_CHARACTERS = 200
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")


def tasks(setting: Setting, command: Sequence[str]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """command: has this program do the part "sanitized" alone."""
    for tool in TOOLS:
        yield tool, partial(run, setting, tool, command)


def run(setting: Setting, tool: str, command: Sequence[str]) -> dict[str, Any]:
    """Runs the command under a tool, for at most half of the time that is left."""
    program = find()
    if program is None:
        return {"finding": "not there"}
    seconds = setting.deadline.left / (2 if tool == TOOLS[0] else 1)
    with TemporaryDirectory() as folder:
        alone = [sys.executable, *command, "--out", folder, f"--seconds={seconds:.0f}"]
        under = [program, f"--tool={tool}", "--error-exitcode=9", *alone]
        with Path(folder, "said").open("w+b") as log:
            try:
                done = subprocess.run(under, stdout=log, stderr=subprocess.STDOUT, timeout=max(1, seconds), check=False)
                code: int | None = done.returncode
            except subprocess.TimeoutExpired:
                code = None
            log.seek(0)
            output = log.read().decode(errors="replace")
    lines = output.splitlines()
    said = lines if len(lines) <= 2 * LINES else [*lines[:LINES], "...", *lines[-LINES:]]
    return {"finding": finding(output, code), "said": said, "tool": program}


def find() -> str | None:
    """The program, on the path or in the CUDA toolkit."""
    places = [Path(prefix, "bin") for prefix in PREFIXES if prefix]
    return shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)]))


def finding(output: str, code: int | None) -> str:
    """What the tool found, in words; code: its exit code, None if it ran out of time.

    >>> finding("========= ERROR SUMMARY: 0 errors", 0)
    'clean'
    """
    if code is None:
        return "out of time"
    found = _SUMMARY.search(output)
    if found is None:
        return "refused"
    count = int(found[1] or found[2])
    if count:
        return f"{count} errors"
    return "clean" if code == 0 else f"the program ended with {code}"


def sanitized_tasks(setting: Setting) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for name in setting.names[:1]:
        yield name, partial(small_batch, setting, name)


def small_batch(setting: Setting, name: str) -> dict[str, Any]:
    """Encodes new texts and the same again, and decodes, with every array an allocation of its own."""
    if setting.handle.name == "cuda":
        setting.handle.xp.cuda.set_allocator(None)  # in a pool nobody sees where an array ends
    texts = [
        text[:TEXT_CHARACTERS]
        for language in setting.data.languages
        for text in setting.data.texts(language)[: BATCH_TEXTS // len(setting.data.languages) + 1]
    ]
    tokenizer, batch = setting.empty_tokenizer(name), TextBatch.of(["", *texts])
    cold, warm = (compare.rows_of(encode_by(tokenizer)(batch)) for _pass in range(2))
    decoded = tokenizer.decode_bytes(warm).to_host()
    return {"same": compare.first_difference(cold, warm) is None, "texts": len(batch), "decoded": len(decoded.bytes)}
