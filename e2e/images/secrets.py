"""How pip on this machine reaches its package index, handed to a build as secrets, so that no layer learns it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from e2e.images import buildah

PASSED_ON = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
CA_IN_BUILD = "/run/secrets/ca"


@contextmanager
def build_options() -> Iterator[list[str]]:
    """The arguments of `buildah bud` with which pip works inside; the files behind them are gone afterwards."""
    settings = _pip_settings()
    with TemporaryDirectory(prefix="tidemill-secrets-") as folder:
        options: list[str] = []
        lines = ["[global]"]
        lines += [f"{name} = {settings[name]}" for name in PASSED_ON if name in settings]
        bundle = settings.get("cert") or next((os.environ[name] for name in BUNDLES if name in os.environ), None)
        if bundle:
            lines.append(f"cert = {CA_IN_BUILD}")
            options += ["--secret", f"id=ca,src={bundle}"]
        conf = Path(folder) / "pip.conf"
        conf.write_text("\n".join([*lines, ""]))
        yield [*options, "--secret", f"id=pip,src={conf}"]


def _pip_settings() -> dict[str, str]:
    """What `pip config list` says, without the section that each setting came from."""
    listed = _pip("config", "list")
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        settings[name.strip().rpartition(".")[2]] = str(ast.literal_eval(value.strip()))
    return settings


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise buildah.ImageError(f"pip {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout
