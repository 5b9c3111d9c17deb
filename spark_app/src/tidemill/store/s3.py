"""A store in an S3 bucket: a create is a PUT with `If-None-Match: *`. The only module that knows the S3 client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import obstore
from obstore import exceptions as client_errors
from obstore.store import S3Store

from tidemill.store.objects import AlreadyExists, Buffer, NotFound, count_request
from tidemill.values.errors import OutcomeUnknown, StoreRefused, StoreUnavailable

_REFUSED = (client_errors.PermissionDeniedError, client_errors.UnauthenticatedError)
_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=5)
_READ_RETRY = timedelta(seconds=10)
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(\w+)")
"""How the client names what is wrong with a certificate, in the long form of an error."""
_MACHINE: Final = "//169.254."
"""Where a cloud's machines give credentials: the client asks there only if the environment has none."""


class S3ObjectStore:
    """Objects below a prefix of one bucket.

    Reads are retried by the client. Creates never are: a repeated PUT would meet its own object and call it foreign, so
    the answer is settled by `store.log`, which reads the slot.
    """

    def __init__(self, url: str, bucket: str, prefix: str, config: dict[str, Any], authority: bytes = b"") -> None:
        """`authority`: certificates (PEM) that are trusted beside the system's."""
        self.url = url
        self.counts: dict[str, int] = {}
        self._prefix = f"{prefix}/" if prefix else ""
        self._reads = _client(bucket, config, authority, retries=5)
        self._writes = _client(bucket, config, authority, retries=0)

    def get(self, key: str) -> bytes:
        count_request(self.counts, "get")
        with self._reading(key):
            return bytes(obstore.get(self._reads, self._prefix + key).bytes())

    def get_range(self, key: str, start: int, length: int, etag: str = "") -> bytes:
        """Some bytes of an object; NotFound where it has another ETag than the one that is given."""
        count_request(self.counts, "get")
        path = self._prefix + key
        with self._reading(key):
            if etag:
                options = {"range": (start, start + length), "if_match": etag}
                return bytes(obstore.get(self._reads, path, options=options).bytes())
            return bytes(obstore.get_range(self._reads, path, start=start, length=length))

    def size(self, key: str) -> int:
        """The bytes of an object. Raises NotFound."""
        return self.size_and_etag(key)[0]

    def size_and_etag(self, key: str) -> tuple[int, str]:
        """The bytes of an object, and the server's name of its content ("" where it gives none). Raises NotFound."""
        count_request(self.counts, "exists")
        with self._reading(key):
            found = obstore.head(self._reads, self._prefix + key)
        return int(found["size"]), found["e_tag"] or ""

    def create(self, key: str, data: Buffer) -> None:
        count_request(self.counts, "create")
        try:
            obstore.put(
                self._writes, self._prefix + key, memoryview(data).cast("B"), mode="create", use_multipart=False
            )
        except client_errors.AlreadyExistsError as error:
            raise AlreadyExists(f"An object {key} exists in {self.url}.", key=key) from error
        except _REFUSED as error:
            raise self._unavailable(key, error) from error
        except (client_errors.BaseError, OSError) as error:
            text = f"The store {self.url} gave no answer to the create of {key}: {_first_line(error)}"
            raise OutcomeUnknown(text, key=key) from error

    def writer(self, key: str, part_bytes: int) -> Any:
        """A file that is written in parts of so many bytes, and is there, whole, when it is closed. Of one that is not
        closed nothing is to be seen. It takes the place of an object of this key.
        """
        count_request(self.counts, "create")
        return obstore.open_writer(self._reads, self._prefix + key, buffer_size=part_bytes, max_concurrency=2)

    def exists(self, key: str) -> bool:
        count_request(self.counts, "exists")
        try:
            with self._reading(key):
                obstore.head(self._reads, self._prefix + key)
        except NotFound:
            return False
        return True

    def delete(self, key: str) -> None:
        count_request(self.counts, "delete")
        try:
            with self._reading(key):
                obstore.delete(self._reads, self._prefix + key)
        except NotFound:
            return

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        count_request(self.counts, "list")
        with self._reading(prefix):
            offset = self._prefix + after if after else None
            keys = [
                str(entry["path"]).removeprefix(self._prefix)
                for chunk in obstore.list(self._reads, self._prefix + prefix, offset=offset, chunk_size=1000)
                for entry in chunk
            ]
        return iter(sorted(keys))

    def local_path(self, key: str) -> Path | None:
        return None

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except (client_errors.NotFoundError, FileNotFoundError) as error:
            raise NotFound(f"No object {key} in {self.url}.", key=key) from error
        except client_errors.PreconditionError as error:
            raise NotFound(f"The object {key} in {self.url} is another one by now.", key=key) from error
        except (client_errors.BaseError, OSError) as error:
            raise self._unavailable(key, error) from error

    def _unavailable(self, key: str, error: Exception) -> StoreUnavailable:
        untrusted = _CERTIFICATE.search(str(error))
        if untrusted:
            advice = (
                f"has a certificate that is not trusted ({untrusted[1]}); check its authority (AWS_CA_BUNDLE; "
                "spec.store.caSecretRef of a Module) and the endpoint's name"
            )
        elif isinstance(error, _REFUSED):
            advice = "refuses the credentials; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy"
        elif _MACHINE in str(error):
            advice = (
                "is asked without credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the environment has "
                "none, and this machine gives none"
            )
        else:
            advice = "did not answer; is it running, and is the endpoint right?"
        return StoreUnavailable(f"The store {self.url} {advice} ({key}: {_first_line(error)})", key=key)


def _client(bucket: str, config: dict[str, Any], authority: bytes, retries: int) -> S3Store:
    is_plain = str(config.get("endpoint", "")).startswith("http://")
    trusted: dict[str, Any] = {"root_certificate": authority} if authority else {}
    try:
        return S3Store(
            bucket,
            config=config,
            client_options={
                "allow_http": is_plain,
                "timeout": _TIMEOUT,
                "connect_timeout": _CONNECT_TIMEOUT,
                **trusted,
            },
            retry_config={"max_retries": retries, "retry_timeout": _READ_RETRY},
        )
    except client_errors.GenericError as error:
        if untrusted := _CERTIFICATE.search(str(error)):
            raise StoreRefused(f"The certificates in AWS_CA_BUNDLE cannot be read ({untrusted[1]})") from error
        raise


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
