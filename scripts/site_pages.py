"""Gathers the pages of the documentation's site into one folder for mkdocs, each where it is in this repository.

`python scripts/site_pages.py FOLDER` writes the folder anew: the Markdown pages of docs and examples, those at the top,
each file that one of them links to, and one page that is made.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from check_docs import LINK

import tidemill

ROOT = Path(__file__).resolve().parent.parent
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FENCE = re.compile(r"^(```\w+) [^\n]*$", re.MULTILINE)
"""A fence with more than its language: words for our tests, which mkdocs would not know."""

OTHERS = Path("docs/reference/python-others.md")
ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ")


def pages() -> list[Path]:
    """All pages, as paths from the root."""
    below = [page for folder in ("docs", "examples") for page in sorted((ROOT / folder).rglob("*.md"))]
    return [Path(name) for name in TOP] + [page.relative_to(ROOT) for page in below]


def linked(page: Path) -> Iterator[Path]:
    """The files of this repository that a page links to, other pages and folders left out."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in (link["target"] for link in LINK.finditer(text)):
        found = (ROOT / page).parent / target
        if "://" not in target and found.is_file() and found.suffix != ".md":
            yield found.resolve().relative_to(ROOT)


def others() -> str:
    """The page of all that the package exports and that no page of the reference names: new names are on it at once."""
    written = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages() if page.name.startswith("python-"))
    sections = dict(re.findall(r"^::: (\S+)\n((?:    .*\n)?)", written + "\n", re.MULTILINE))
    lines = [
        "# Python: everything else",
        "",
        "Made from the docstrings of what `tidemill` exports beside the other pages.",
        "",
    ]
    for module, names in tidemill._NAMES.items():
        options = sections.get(module, "members: []")
        left = [name for name in names if "members: [" in options and not re.search(rf"\b{name}\b", options)]
        if left:
            lines += [f"::: {module}", f"    options: {{members: [{', '.join(left)}]}}"]
    return "\n".join(lines) + "\n"


def config() -> str:
    """mkdocs.yml, with the pages that it does not name at its end."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").rstrip()
    known = ("docs/decisions/", "examples/")
    unnamed = [str(page) for page in pages() if str(page) not in text and not str(page).startswith(known)]
    return "\n".join([text, *(f"      - {page}" for page in unnamed)]) + "\n"


def with_lists_apart(text: str) -> str:
    """A list that begins right after a line of text, which GitHub shows as a list, gets an empty line before it."""
    is_code, before, lines = False, "", []
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_text = before.strip() and not ITEM.match(before) and not before.startswith((" ", "#", "|", ">", "<"))
        if not is_code and ITEM.match(line) and is_text:
            lines.append("")
        lines.append(line)
        before = line
    return "\n".join(lines) + "\n"


def text_of(page: Path) -> str:
    """A page as mkdocs understands it: plain fences, an empty line before each list, and no links to folders, which a
    site does not have.
    """

    def unless_folder(link: re.Match[str]) -> str:
        is_folder = "://" not in link["target"] and ((ROOT / page).parent / link["target"]).is_dir()
        return link["text"] if is_folder else link[0]

    text = with_lists_apart(FENCE.sub(r"\1", (ROOT / page).read_text(encoding="utf-8")))
    return LINK.sub(unless_folder, text)


def write(folder: Path) -> int:
    """Write the folder, and mkdocs.yml beside it; returns the number of pages."""
    shutil.rmtree(folder, ignore_errors=True)
    found = pages()
    for page in found:
        place = folder / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text_of(page), encoding="utf-8")
    (folder / OTHERS).write_text(others(), encoding="utf-8")
    (folder.parent / "mkdocs.yml").write_text(config(), encoding="utf-8")
    for file in {file for page in found for file in linked(page)}:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, folder / file)
    return len(found) + 1


if __name__ == "__main__":
    sys.stdout.write(f"{write(Path(sys.argv[1]))} pages\n")
