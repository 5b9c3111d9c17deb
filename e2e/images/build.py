"""Builds what changed, in the order of FROM."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from e2e.cluster import packages
from e2e.cluster.shell import ClusterError
from e2e.images import base, buildah, layout, secrets
from e2e.images.layout import Built
from e2e.images.places import ROOT, cache
from e2e.images.recipes import RECIPES, Recipe, with_parents


@dataclass(frozen=True)
class Outcome:
    """An image that was asked for; `seconds` is 0 where nothing had changed."""

    built: Built
    seconds: float


def build(names: list[str]) -> list[Outcome]:
    """Builds the named images (all, if none is named) and those that they are FROM.

    Raises:
        ImageError: the programs that build cannot be installed, a name is unknown, or a build failed.
    """
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise buildah.ImageError(f"No image {', '.join(unknown)}; there are {', '.join(RECIPES)}.")
    keys = {"base": base.KEY}
    outcomes = []
    with _alone():
        for recipe in with_parents(names or list(RECIPES)):
            keys[recipe.name] = recipe.key(keys[recipe.parent])
            outcomes.append(_ensure(recipe, keys[recipe.name]))
        if any(outcome.seconds for outcome in outcomes):
            layout.prune()
    return outcomes


@contextmanager
def _alone() -> Iterator[None]:
    """One build at a time: index and layout are read, then written. The lock ends with the process."""
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ensure(recipe: Recipe, key: str) -> Outcome:
    known = layout.index().get(recipe.ref)
    if known and known.key == key and layout.blob(known.manifest).exists():
        return Outcome(known, 0.0)
    start = time.monotonic()
    sys.stderr.write(f"Building {recipe.ref} ...\n")
    see_to_programs()
    _bud(recipe)
    built = layout.add(recipe.ref, recipe.ref, key)
    return Outcome(built, time.monotonic() - start)


def see_to_programs() -> None:
    try:
        packages.install_missing(packages.FOR_IMAGES)
    except ClusterError as error:
        raise buildah.ImageError(
            f"{error} They build images without Docker; with Docker the Dockerfiles do."
        ) from error
    if os.geteuid() != 0:
        raise buildah.ImageError("buildah must run as root here: run this with sudo, or build with Docker.")


def _bud(recipe: Recipe) -> None:
    parent = RECIPES[recipe.parent].ref if recipe.parent in RECIPES else base.ensure()
    arguments = {recipe.parent_argument: parent, **recipe.arguments}
    options = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    with secrets.build_options() as secret_options:
        buildah.run(
            "bud", "--isolation", "chroot", "--network", "host", "--pull=never", "--layers", "--format", "oci",
            *secret_options, *options, "--file", str(ROOT / recipe.dockerfile), "--tag", recipe.ref, str(ROOT),
        )  # fmt: skip
