"""A bucket that is asked without credentials: the message says that they are missing, not that the store is away."""

from __future__ import annotations

from typing import Any

import pytest
from obstore.exceptions import GenericError

from tidemill.store import s3
from tidemill.store.s3 import S3ObjectStore
from tidemill.values.errors import StoreUnavailable

ASKED = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 2ms - HTTP error"


@pytest.mark.parametrize(
    ("said", "expected"),
    [(ASKED, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), ("HTTP error: connect", "did not answer")],
)
def test_missing_credentials_are_named_when_the_environment_has_none(
    said: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def head(*_: Any) -> None:
        raise GenericError(said)

    monkeypatch.setattr(s3.obstore, "head", head)
    store = S3ObjectStore("s3://b", "b", "", {"endpoint": "http://127.0.0.1:1", "region": "us-east-1"})

    with pytest.raises(StoreUnavailable, match=expected):
        store.exists("key")
