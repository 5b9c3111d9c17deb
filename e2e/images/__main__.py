"""`python -m e2e.images build | load | archive | pin | clean`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from e2e.images import archive, build, buildah, layout, load, pins
from e2e.images.buildah import ImageError
from e2e.images.places import cache
from e2e.images.recipes import RECIPES


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.action(options)
    except ImageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.images", description=__doc__)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    one = actions.add_parser("build", help="build what changed and print the sizes")
    one.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RECIPES)}; default: all")
    one.set_defaults(action=_build)
    one = actions.add_parser("load", help="bring images into a containerd")
    one.add_argument("--ctr", required=True, help='for example "ctr -a /run/containerd/containerd.sock -n k8s.io"')
    one.add_argument("refs", nargs="*", metavar="REF")
    one.set_defaults(action=_load)
    one = actions.add_parser("archive", help="write images as one tar for docker load or kind load image-archive")
    one.add_argument("file", type=Path)
    one.add_argument("refs", nargs="*", metavar="REF")
    one.set_defaults(action=_archive)
    one = actions.add_parser("pin", help="derive the images' requirements files from pyproject.toml")
    one.set_defaults(action=_pin)
    one = actions.add_parser("clean", help="remove everything built, downloads included")
    one.set_defaults(action=_clean)
    return parser


def _build(options: argparse.Namespace) -> None:
    outcomes = build.build(options.names)
    sys.stdout.write(f"{'image':40} {'MB':>6} {'own MB':>7} {'layers':>6} {'built in':>9}\n")
    parents: set[str] = set()
    for outcome in outcomes:
        built = outcome.built
        own = sum(layout.blob(layer).stat().st_size for layer in set(built.layers) - parents)
        parents |= set(built.layers)
        took = f"{outcome.seconds:.1f} s" if outcome.seconds else "unchanged"
        sys.stdout.write(f"{built.ref:40} {_mb(built.bytes):>6} {_mb(own):>7} {len(built.layers):>6} {took:>9}\n")


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f}" if count < 10e6 else f"{count / 1e6:.0f}"


def _load(options: argparse.Namespace) -> None:
    for ref in load.into_containerd(shlex.split(options.ctr), options.refs or None):
        sys.stdout.write(f"loaded {ref}\n")


def _archive(options: argparse.Namespace) -> None:
    with options.file.open("wb") as stream:
        archive.write(stream, load.chosen(options.refs or None))


def _pin(options: argparse.Namespace) -> None:
    for path in pins.write():
        sys.stdout.write(f"wrote {path}\n")


def _clean(options: argparse.Namespace) -> None:
    buildah.forget_storage()
    shutil.rmtree(cache(), ignore_errors=True)


sys.exit(main())
