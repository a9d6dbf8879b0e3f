"""Fixtures: definitions by name and real texts, made once a session. What is absent skips its test, with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable

import corpora
import oracle
import pytest
import vocabularies
from hypothesis import HealthCheck, settings
from package_vocabularies import Absent
from tokenizers import Tokenizer

# No deadline: the first example may compile a kernel. In CI the same examples every time.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("project"), derandomize=True)
settings.register_profile("long", settings.get_profile("project"), max_examples=20_000)
settings.load_profile("ci" if os.environ.get("CI") else "project")


@pytest.fixture(scope="session")
def definition_text() -> Callable[[str], str]:
    """`definition_text("own/bert")` is the text of a `tokenizer.json`; skips where it cannot be had."""

    def text_or_skip(name: str) -> str:
        try:
            return vocabularies.text(name)
        except Absent as absent:
            pytest.skip(str(absent))

    return text_or_skip


@pytest.fixture(scope="session", params=["cpu", "emulated"])
def device(request: pytest.FixtureRequest) -> str:
    """`device=` for what must be the same on all of them."""
    return request.param


@pytest.fixture(scope="session")
def reference(definition_text: Callable[[str], str]) -> Callable[[str], Tokenizer]:
    """`reference("own/bert")` is the oracle for a name, truncation and padding off; skips where it cannot be had."""
    return lambda name: oracle.plain(definition_text(name))


@pytest.fixture(scope="session")
def real_texts() -> Callable[..., list[str]]:
    """`real_texts("zh", 100_000)` gives that many bytes of real texts; skips where there are none."""

    def texts_or_skip(language: str = "en", byte_count: int = 200_000) -> list[str]:
        try:
            return corpora.sample(language, byte_count)
        except Absent as absent:
            pytest.skip(str(absent))

    return texts_or_skip
