"""The package as it is shipped, and the repository as it is read: wheel, metadata, commands, paths."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

RUNTIME = {"numpy", "numba", "tokenizers", "pyarrow", "orjson", "zstandard", "typer", "rich"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, built by pip without dependencies, from a copy that leaves the checkout alone."""
    copy = tmp_path_factory.mktemp("source")
    for name in tracked_or_new_files():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode and re.search(r"(?i)connection|network|no matching distribution.*setuptools", built.stderr):
        pytest.skip(f"no build tools without a network: {built.stderr[-200:]}")
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def tracked_or_new_files() -> list[str]:
    """The files of the checkout that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def metadata_of(archive: zipfile.ZipFile):
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(archive.read(name).decode("utf-8"))


def test_the_wheel_holds_every_module_and_its_data(wheel):
    names = set(wheel.namelist())
    modules = {name for name in tracked_or_new_files() if re.match(r"(gpu_tok|cpu_ref)/.*\.py$", name)}
    assert modules <= names, f"left out: {sorted(modules - names)}"
    kernels = {f"gpu_tok/{name}" for name in tracked_or_new_files() if name.startswith("kernels/")}
    assert kernels <= names, f"left out: {sorted(kernels - names)}"
    assert "gpu_tok/py.typed" in names
    assert "gpu_tok/tables/unicode.npz" in names
    data = {name for name in tracked_or_new_files() if name.startswith("gpu_tok/demo/")}
    assert len(data) > 1
    assert data <= names


def test_the_wheel_holds_nothing_of_tests_benchmarks_or_others_data(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gpu_tok", "cpu_ref"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name or name.endswith((".nbi", ".nbc"))]


def test_the_demo_data_is_under_a_megabyte(wheel):
    sizes = [info.file_size for info in wheel.infolist() if info.filename.startswith("gpu_tok/demo/")]
    assert sum(sizes) < 1_000_000


def test_the_wheel_stays_small(wheel):
    assert sum(info.compress_size for info in wheel.infolist()) < 3_000_000


def test_the_wheel_asks_for_what_it_needs_and_pins_the_reference(wheel):
    metadata = metadata_of(wheel)
    plain = [need for need in metadata.get_all("Requires-Dist") if "extra ==" not in need]
    names = {re.match(r"[\w-]+", need).group().lower() for need in plain}
    assert names == RUNTIME
    (reference,) = (need for need in plain if need.startswith("tokenizers"))
    assert set(reference.removeprefix("tokenizers").strip(" ()").split(",")) == {">=0.23.3", "<0.24"}
    assert set(metadata["Requires-Python"].split(",")) == {">=3.10", "<3.14"}


def test_the_wheel_offers_the_extras(wheel):
    extras = set(metadata_of(wheel).get_all("Provides-Extra"))
    assert {"cuda", "cuda12", "test", "bench", "notebooks"} <= extras


def test_the_wheel_installs_the_command(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "gpu-tok = gpu_tok.cli:" in wheel.read(name).decode("utf-8")


def test_no_file_names_a_path_of_one_machine():
    own = Path(__file__).name
    personal = re.compile(rb"/(?:home|Users|root|work|workspace|mnt|tmp)/[A-Za-z0-9_.-]+/")
    found = [
        f"{name}: {match.group().decode('utf-8', 'replace')}"
        for name in tracked_or_new_files()
        if not name.endswith((own, ".npz", ".zst", ".parquet", ".png"))
        for match in personal.finditer((ROOT / name).read_bytes())
    ]
    assert found == []


def test_the_first_commands_of_the_readme_are_the_two_that_set_up():
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    main_job, tests = blocks[0].strip(), blocks[1].strip()
    assert "\n" not in main_job
    assert "\n" not in tests
    assert main_job.endswith("gpu-tok demo")
    assert tests == "./check"


def test_the_readmes_test_command_is_what_ci_runs():
    for name in ("check", ".ci/run"):
        mode = (ROOT / name).stat().st_mode
        assert mode & stat.S_IXUSR, f"{name} cannot be executed"
    assert "../check" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_file_that_the_readme_names_is_there():
    named = re.findall(r"`((?:gpu_tok|cpu_ref|tests|bench|notebooks|kernels|\.ci)/[\w./-]*|\w+\.md)`", README)
    missing = [name for name in named if not (ROOT / name).exists() and name != "bench/results/"]
    assert len(named) > 3
    assert missing == []


def test_the_readme_has_no_place_left_open():
    assert "FIGURES:" not in README


def test_the_command_of_the_readme_exists():
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
    command = [sys.executable, "-c", "from gpu_tok.cli import app; app()", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert shown.returncode == 0, shown.stderr
    for name in set(re.findall(r"gpu-tok ([a-z]+)", README)):
        assert re.search(rf"\b{name}\b", shown.stdout), f"gpu-tok has no command {name}"
