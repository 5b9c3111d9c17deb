"""The documentation as a site: built without a warning, of its own files only, and complete."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from site_pages import OTHERS, pages, with_lists_apart

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?([^\"> ]+)|<link[^>]* href=\"?([^\"> ]+)")

pytestmark = pytest.mark.timeout(900)  # the first time, tools and packages are fetched


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site that was built as `make docs` builds it; a warning is an error there."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        ["bash", ROOT / "scripts/site.sh", "--site-dir", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_comes_from_another_host_when_a_page_is_loaded(site: Path) -> None:
    loaded = {found for page in site.rglob("*.html") for pair in LOADED.findall(page.read_text()) for found in pair}

    assert len(loaded - {""}) > 10
    assert [place for place in loaded if re.match(r"(\w+:)?//", place) and not place.startswith("data:")] == []


def test_each_page_is_there_and_found_when_the_site_is_built(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    expected = {str(page.with_suffix(".html")).replace("README.html", "index.html") for page in [*pages(), OTHERS]}

    assert found == expected - {"index.html"} | {""} or found == expected


def test_the_reference_has_what_the_package_exports_when_it_is_made_from_docstrings(site: Path) -> None:
    import tidemill

    made = "".join(page.read_text() for page in (site / "docs/reference").glob("python-*.html"))
    anchors = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="(tidemill\.[\w.]+)"', made)}

    assert sorted(set(tidemill.__all__) - anchors) == []


def test_a_list_is_set_apart_when_it_begins_right_after_a_line_of_text() -> None:
    apart = "- one\n  more\n- two\n\n```\nx\n- y\n```\n## Title\n- three\n"

    assert with_lists_apart("These:\n- one\n- two\n") == "These:\n\n- one\n- two\n"
    assert with_lists_apart(apart) == apart


def test_each_word_is_defined_once_and_in_order_when_the_glossary_is_read() -> None:
    words = re.findall(r"^\*\*(.+?)\*\* — ", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert len(words) > 40
    assert words == sorted(words, key=str.lower)
    assert len({word.lower() for word in words}) == len(words)
    exported = {"Module", "Depot", "PState", "Path"}
    assert exported <= set(words)  # what a newcomer imports first
