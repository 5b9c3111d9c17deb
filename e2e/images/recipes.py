"""What each image is made of, and the hash of it that says whether it must be built again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from e2e.images.places import ROOT

REPOSITORY = "localhost/tidemill"
LIBRARY = ("pyproject.toml", "README.md", "LICENSE", "spark_app/src")
COUNTS_VARIANTS = ("v1", "v2", "v3", "late", "many50", "incompatible", "broken-import", "crashing", "failing")
VARIANTS = ("v2", "broken-import", "incompatible")


@dataclass(frozen=True)
class Recipe:
    """One image: its Dockerfile, the paths that the Dockerfile copies, and the image that it is FROM."""

    name: str
    ref: str
    dockerfile: str
    inputs: tuple[str, ...]
    parent: str = "base"
    parent_argument: str = "BASE_IMAGE"
    arguments: dict[str, str] = field(default_factory=dict)

    def key(self, parent_key: str) -> str:
        """Changes when any byte changes that can reach the image."""
        digest = hashlib.sha256(f"{parent_key}\0{sorted(self.arguments.items())}".encode())
        for path in sorted((self.dockerfile, *self.inputs)):
            for file in _files(ROOT / path):
                digest.update(f"\0{file.relative_to(ROOT)}\0{file.stat().st_mode & 0o111}\0".encode())
                digest.update(file.read_bytes())
        return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return sorted(file for file in found if file.suffix != ".pyc")


def _of_ours(name: str, *code: str) -> Recipe:
    folder = f"images/{name}"
    inputs = (folder, "images/requirements-build.txt", "images/strip-libraries.sh", *code)
    return Recipe(name, f"{REPOSITORY}/{name}:dev", f"{folder}/Dockerfile", inputs)


def _variant(tag: str) -> Recipe:
    folder = "e2e/images/variants"
    inputs = (folder, "examples/flights/module.py")
    dockerfile = "e2e/images/variants/Dockerfile"
    ref = f"{REPOSITORY}/flights:{tag}"
    return Recipe(f"flights-{tag}", ref, dockerfile, inputs, "flights", "FLIGHTS_IMAGE", {"VARIANT": tag})


def _counts(tag: str) -> Recipe:
    """The module of the e2e stories, which makes every variant from one folder."""
    folder, ref = "e2e/fixtures/counts", f"{REPOSITORY}/counts:{tag}"
    return Recipe(f"counts-{tag}", ref, f"{folder}/Dockerfile", (folder,), "runner", "RUNNER_IMAGE", {"VARIANT": tag})


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _of_ours("runner", "scripts/class_archive.py", *LIBRARY),
        _of_ours("gateway", *LIBRARY),
        _of_ours("operator", "operator"),
        Recipe(
            "flights",
            f"{REPOSITORY}/flights:dev",
            "examples/flights/Dockerfile",
            ("examples/flights",),
            "runner",
            "RUNNER_IMAGE",
        ),
        Recipe(
            "examples",
            f"{REPOSITORY}/examples:dev",
            "examples/Dockerfile",
            ("examples/__init__.py", "examples/bank_transfer", "examples/social_graph"),
            "runner",
            "RUNNER_IMAGE",
        ),
        *(_variant(tag) for tag in VARIANTS),
        *(_counts(tag) for tag in COUNTS_VARIANTS),
    )
}


def with_parents(names: list[str]) -> list[Recipe]:
    """The named recipes and those that they are FROM, each after its parent."""
    ordered: dict[str, Recipe] = {}

    def add(name: str) -> None:
        recipe = RECIPES[name]
        if recipe.parent in RECIPES:
            add(recipe.parent)
        ordered.setdefault(name, recipe)

    for name in names:
        add(name)
    return list(ordered.values())
