"""A store behind TLS: trusted by the authority that AWS_CA_BUNDLE names, refused with words that say what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.store import urls
from tidemill.store.objects import NotFound
from tidemill.values.errors import StoreRefused, StoreUnavailable


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`own.crt` signed `public.crt` (for 127.0.0.1); `other.crt` signed nothing."""
    folder = tmp_path_factory.mktemp("authorities")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name in ("own", "other"):
        _openssl(folder, "req", "-x509", *key, "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                 "-out", f"{name}.crt")  # fmt: skip
    _openssl(folder, "req", *key, "-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", "private.key", "-out", "request.pem")  # fmt: skip
    _openssl(folder, "x509", "-req", "-in", "request.pem", "-CA", "own.crt", "-CAkey", "own.key", "-CAcreateserial",
             "-days", "2", "-copy_extensions", "copy", "-out", "public.crt")  # fmt: skip
    return folder


class _Bucket:
    """Answers every request over TLS as an empty store does: no such object."""

    def __init__(self, folder: Path) -> None:
        import http.server
        import ssl
        import threading

        class Empty(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "public.crt", folder / "private.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port = self._server.server_address[1]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def bucket(authorities: Path) -> Iterator[_Bucket]:
    """A server whose certificate is for 127.0.0.1 only."""
    started = _Bucket(authorities)
    yield started
    started.close()


def _ask(host: str, port: int) -> None:
    urls.connect(f"s3://bucket?endpoint=https://{host}:{port}").get("a")


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")


def test_store_answers_when_its_authority_is_named(
    authorities: Path, bucket: _Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authorities / "own.crt"))
    with pytest.raises(NotFound):
        _ask("127.0.0.1", bucket.port)


@pytest.mark.parametrize("named", ["", "other.crt"])
def test_store_is_not_trusted_when_another_authority_or_none_is_named(
    authorities: Path, bucket: _Bucket, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authorities / named) if named else "")
    with pytest.raises(StoreUnavailable, match="certificate that is not trusted .*AWS_CA_BUNDLE.*caSecretRef"):
        _ask("127.0.0.1", bucket.port)


def test_store_is_not_trusted_when_its_certificate_is_for_another_name(
    authorities: Path, bucket: _Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authorities / "own.crt"))
    with pytest.raises(StoreUnavailable, match=r"not trusted \(NotValidForName"):
        _ask("localhost", bucket.port)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        ("nothing of use", "holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n", "cannot be read"),
    ],
    ids=["missing", "no PEM", "damaged"],
)
def test_store_is_refused_when_the_file_of_authorities_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, words: str
) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(path))
    with pytest.raises(StoreRefused, match=words):
        _ask("127.0.0.1", 1)
