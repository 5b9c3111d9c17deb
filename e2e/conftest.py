"""Fixtures of the stories: the system once, a namespace and a bucket for each story, figures at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from e2e.harness.figures import Figures, kept
from e2e.harness.story import Story
from e2e.harness.system import System

FIGURES = Figures()


def pytest_configure(config: pytest.Config) -> None:
    """Names the two kinds of stories."""
    config.addinivalue_line("markers", "quick: in the subset for continuous integration")
    config.addinivalue_line("markers", "long: only when all stories run")


@pytest.fixture(scope="session")
def system() -> Iterator[System]:
    """A cluster with store, custom resources and operator."""
    started = System.start(nodes=int(os.environ.get("E2E_NODES", "2")))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def story(system: System, request: pytest.FixtureRequest) -> Iterator[Story]:
    """A namespace and a bucket for this test; both are gone afterwards."""
    name = request.path.stem.removeprefix("test_")
    told = Story(system, FIGURES, name)
    told.open()
    try:
        yield told
    finally:
        system.faults.mend()
        if not os.environ.get("E2E_KEEP"):
            told.leave()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed story tells what its objects and pods looked like."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.failed and "story" in getattr(item, "funcargs", {}):
        report.sections.append(("what was there", item.funcargs["story"].tell()))  # type: ignore[attr-defined]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what was measured."""
    if FIGURES.measured:
        terminalreporter.section(f"figures, kept in {kept()}; `make promises` publishes them")
        for figure in FIGURES.measured:
            terminalreporter.line(f"{figure.story}: {figure}")
