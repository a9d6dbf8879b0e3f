"""Is everything there that the check needs, in a version that does? With the standard library and `packaging` alone.

    cd bench && python -m on_gpu.versions --data DIR --device cuda

Prints a line for each thing that is off and exits with 2; silent otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from importlib import metadata
from pathlib import Path

import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"cupy-cuda13x": "cupy"}


def requirements(device: str) -> list[Requirement]:
    """What pyproject.toml asks for; CuPy too where there is a GPU."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [Requirement(text) for text in project["dependencies"]]
    if device == "cuda":
        named += [Requirement(text) for text in project["optional-dependencies"]["cuda"] if text.startswith("cupy")]
    return named


def finding_about(needed: Requirement) -> str | None:
    """What is off with a package; None if nothing is.

    >>> finding_about(Requirement("numpy>=99"))
    'numpy 2.5.2 is there, and it takes numpy>=99'
    """
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"{needed.name} is not installed, and it takes {needed}"
    if not needed.specifier.contains(version, prereleases=True):
        return f"{needed.name} {version} is there, and it takes {needed}"
    try:
        importlib.import_module(MODULES.get(needed.name, needed.name))
    except Exception as error:  # whatever a broken installation raises
        return f"{needed.name} {version} does not load: {type(error).__name__}: {error}"
    return None


def findings(data: Path, device: str) -> list[str]:
    """What is off, a line each."""
    manifest = data / "MANIFEST.json"
    if not manifest.is_file():
        return [f"{manifest} is not there: make the folder with bench/pack_data.py"]
    packed = json.loads(manifest.read_text(encoding="utf-8"))
    off = [finding for needed in requirements(device) if (finding := finding_about(needed))]
    running = ".".join(platform.python_version_tuple()[:2])
    if packed["wheels"] and running != packed["python"]:
        off.insert(0, f"this is Python {running}, and the wheels in {data} are for {packed['python']}")
    if device == "cuda":
        off += _without_nvrtc()
    return off


def _without_nvrtc() -> list[str]:
    try:
        from gpu_tok import nvrtc

        nvrtc.find()
    except Exception as error:
        return [f"NVRTC is not there: {error}"]
    return []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    found = findings(asked.data, asked.device)
    for line in found:
        print(f"gpu_check: {line}", file=sys.stderr)
    if found:
        print("hint: bench/pack_data.py --download WHAT==VERSION puts a wheel into the folder", file=sys.stderr)
    sys.exit(2 if found else 0)
