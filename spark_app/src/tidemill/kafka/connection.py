"""What a source and a sink of Kafka share: their settings, and a library that is loaded when it is needed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidemill.values.errors import BadInput, ExternalUnavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


_LOG_LEVEL: Final = 2  # what is wrong is in the errors; else each try to connect writes a line to stderr


def checked_topic(topic: Any, bootstrap_servers: Any) -> None:
    """Raises:
    BadInput: these name no topic, or no server; or the client library is not installed.
    """
    if importlib.util.find_spec("confluent_kafka") is None:
        raise BadInput("Kafka needs its client library: pip install 'tidemill[kafka]'.")
    if not isinstance(topic, str) or not topic:
        raise BadInput(f"The name of a topic is a text, not {topic!r}.")
    if not isinstance(bootstrap_servers, str) or not bootstrap_servers:
        raise BadInput(f"bootstrap_servers is a text such as 'host:9092,host2:9092', not {bootstrap_servers!r}.")


def checked_config(config: Mapping[str, Any] | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for librdkafka: those of the user and our own, which exactness rests on.

    Raises:
        BadInput: the user sets one that is ours.
    """
    given = dict(config or {})
    taken = sorted(given.keys() & own.keys())
    if taken:
        raise BadInput(f"config may not set {', '.join(taken)}: what is read and written exactly once rests on it.")
    return {"log_level": _LOG_LEVEL, **given, **own}


def checked_seconds(name: str, seconds: Any) -> float:
    """A time in seconds. Raises BadInput: it is none above 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise BadInput(f"{name} is a number of seconds above 0, not {seconds!r}.")
    return float(seconds)


def checked_count(name: str, count: Any) -> int:
    """A whole number from 1 on. Raises BadInput: it is none."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadInput(f"{name} is a whole number from 1 on, not {count!r}.")
    return count


def unavailable(what: str, error: KafkaError | Exception) -> ExternalUnavailable:
    """The error for a broker that does not answer, or answers with an error."""
    return ExternalUnavailable(f"Kafka: {what}: {error}")


def quiet(_error: object) -> None:
    """Takes what librdkafka says of connections that come and go; what matters comes back from calls."""
