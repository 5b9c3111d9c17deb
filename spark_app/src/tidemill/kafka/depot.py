"""`KafkaDepot`: a topic of Kafka as the depot of a source."""

from __future__ import annotations

import importlib
import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from tidemill.kafka.connection import (
    checked_config,
    checked_count,
    checked_seconds,
    checked_topic,
    quiet,
    unavailable,
)
from tidemill.language.external import ExternalDepot
from tidemill.language.objects import TaskGlobalContext
from tidemill.values.errors import BadInput, UserCodeError, message_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition
    from confluent_kafka.admin import AdminClient

PARTITIONS_SECONDS: Final = 30.0
"""How old the number of partitions may be."""

_LOOK_SECONDS: Final = 0.05
_WAIT_MILLIS: Final = 10  # what is to be read is there already: a long wait is for its end only
Decode = Literal["json", "string", "bytes"] | Callable[["Message"], Any]


def _json(message: Message) -> Any:
    value = message.value()
    return None if value is None else json.loads(value)


def _string(message: Message) -> Any:
    value = message.value()
    return None if value is None else value.decode()


def _bytes(message: Message) -> Any:
    return message.value()


_DECODERS: Final[dict[str, Callable[[Message], Any]]] = {"json": _json, "string": _string, "bytes": _bytes}


class KafkaDepot(ExternalDepot):
    """A topic whose messages are the records of a source: `setup.declare_object("*orders", KafkaDepot("orders", …))`.

    Only committed messages are read (read_committed). Offsets of messages that transactions aborted, and of what Kafka
    writes for itself, are holes: they count as processed and give no record.
    """

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str,
        *,
        decode: Decode = "json",
        config: Mapping[str, Any] | None = None,
        timeout_seconds: float = 5.0,
        fetch_seconds: float = 30.0,
        fetch_rows: int = 10_000,
        fetch_bytes: int = 16 * 1024 * 1024,
    ) -> None:
        """`decode` makes a record of a message: "json", "string" or "bytes" of its value (None of a tombstone), or a
        function of the message (`confluent_kafka.Message`). `config` are more settings of librdkafka, such as those of
        TLS and SASL. A question may take `timeout_seconds`; a fetch fails when no message came for `fetch_seconds`.
        At most `fetch_rows` messages are taken from the client at once, and it holds at most about `fetch_bytes` ahead.

        Raises:
            BadInput: an argument is wrong, or `confluent-kafka` is not installed.
        """
        checked_topic(topic, bootstrap_servers)
        if not callable(decode) and decode not in _DECODERS:
            raise BadInput(f"decode is 'json', 'string', 'bytes' or a function of a message, not {decode!r}.")
        self.topic = topic
        self._decode = decode if callable(decode) else _DECODERS[decode]
        self._timeout = checked_seconds("timeout_seconds", timeout_seconds)
        self._fetch_seconds = checked_seconds("fetch_seconds", fetch_seconds)
        self._fetch_rows = checked_count("fetch_rows", fetch_rows)
        held = checked_count("fetch_bytes", fetch_bytes)
        reading: dict[str, Any] = {
            "group.id": "tidemill", "enable.auto.commit": False, "enable.auto.offset.store": False,
            "auto.offset.reset": "error", "isolation.level": "read_committed", "enable.partition.eof": True,
            "fetch.message.max.bytes": held, "fetch.max.bytes": held, "message.max.bytes": min(held, 1_000_000_000),
            "queued.max.messages.kbytes": max(1, held // 1024), "fetch.wait.max.ms": _WAIT_MILLIS,
            "fetch.queue.backoff.ms": _WAIT_MILLIS,
        }  # fmt: skip
        every = checked_config(config, {"bootstrap.servers": bootstrap_servers, **reading})
        self._asking = {name: value for name, value in every.items() if name not in reading} | {"error_cb": quiet}
        self._reading = {**self._asking, **reading}

    def __repr__(self) -> str:
        return f"KafkaDepot({self.topic!r})"

    # --- lifecycle ---

    def prepare_for_task(self, context: TaskGlobalContext) -> None:
        """Make the client that asks for offsets; connections are made when they are needed."""
        from confluent_kafka.admin import AdminClient

        self._admin: AdminClient = AdminClient(self._asking)
        self._lock = threading.Lock()
        self._idle: list[Consumer] = []
        self._partitions: tuple[float, int] = (float("-inf"), 0)

    def close(self) -> None:
        """Close the connections."""
        for consumer in self.__dict__.pop("_idle", []):
            consumer.close()
        self.__dict__.pop("_admin", None)

    # --- questions ---

    def get_num_partitions(self) -> int:
        """As Kafka said within the last `PARTITIONS_SECONDS`."""
        at, count = self._partitions
        if count and time.monotonic() - at < PARTITIONS_SECONDS:
            return count
        try:
            found = self._admin.list_topics(self.topic, timeout=self._timeout).topics[self.topic]
        except Exception as error:
            raise unavailable(f"the topic {self.topic}", error) from error
        if found.error is not None:
            raise unavailable(f"the topic {self.topic}", found.error)
        self._partitions = (time.monotonic(), len(found.partitions))
        return len(found.partitions)

    def start_offset(self, partition: int) -> int:
        """The first offset that Kafka has kept."""
        return self._offsets({partition: None})[partition]

    def end_offset(self, partition: int) -> int:
        """The last stable offset: what is below it is committed or aborted."""
        return self._offsets({partition: -1})[partition]

    def bounds(self) -> Sequence[tuple[int, int]]:
        """All partitions with one request for their starts and one for their ends."""
        every = range(self.get_num_partitions())
        starts, ends = self._offsets(dict.fromkeys(every)), self._offsets(dict.fromkeys(every, -1))
        return [(starts[p], max(starts[p], ends[p])) for p in every]

    def offset_after_timestamp_millis(self, partition: int, millis: int) -> int:
        """By the timestamps of messages; where clocks of producers differ, the first later one counts."""
        found = self._offsets({partition: millis + 1})[partition]
        return self.end_offset(partition) if found < 0 else found

    def _offsets(self, wanted: Mapping[int, int | None]) -> dict[int, int]:
        """Of each partition its start (None), its last stable offset (-1), or the first from a time on (-1: none)."""
        from confluent_kafka import IsolationLevel, TopicPartition

        specs: Any = importlib.import_module("confluent_kafka.admin").OffsetSpec  # its stubs do not export it

        def spec(at: int | None) -> Any:
            if at is None:
                return specs.earliest()
            return specs.latest() if at == -1 else specs.for_timestamp(at)

        asked = {TopicPartition(self.topic, p): spec(at) for p, at in wanted.items()}
        try:
            futures = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
            )
            return {place.partition: future.result(self._timeout + 1).offset for place, future in futures.items()}
        except Exception as error:
            raise unavailable(f"offsets of the topic {self.topic}", error) from error

    # --- records ---

    def fetch_from(self, partition: int, start: int, end: int) -> list[Any]:
        """The records of the committed messages in [start, end)."""
        with self._consumer(partition, start) as consumer:
            return [self._decoded(message) for message in self._messages(consumer, partition, start, end)]

    @contextmanager
    def _consumer(self, partition: int, start: int) -> Iterator[Consumer]:
        """A consumer that begins there; one that failed is not used again."""
        from confluent_kafka import Consumer, TopicPartition

        with self._lock:
            consumer = self._idle.pop() if self._idle else Consumer(self._reading)
        try:
            place: TopicPartition = TopicPartition(self.topic, partition, start)
            consumer.assign([place])
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            self._idle.append(consumer)

    def _messages(self, consumer: Consumer, partition: int, start: int, end: int) -> Iterator[Message]:
        position, heard = start, time.monotonic()
        while position < end:
            found = consumer.consume(min(self._fetch_rows, end - position), timeout=_LOOK_SECONDS)
            for message in found:
                position = max(position, self._position(message))
                if message.error() is None and (message.offset() or 0) < end:
                    yield message
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._fetch_seconds:
                text = f"no message of {self.topic} partition {partition} from offset {position} on"
                raise unavailable(text, TimeoutError(f"for {self._fetch_seconds:g} seconds"))

    def _position(self, message: Message) -> int:
        """Up to where everything was seen; at the end of what is committed, Kafka says so."""
        from confluent_kafka import KafkaError

        error, offset = message.error(), message.offset()
        if error is None:
            return int(offset or 0) + 1
        if error.code() == KafkaError._PARTITION_EOF:
            return int(offset or 0)
        raise unavailable(f"the topic {self.topic}", error)

    def _decoded(self, message: Message) -> Any:
        try:
            return self._decode(message)
        except Exception as error:
            at = f"message {message.offset()} of {self.topic} partition {message.partition()}"
            shown = repr(message.value())[:_SHOWN_CHARS]
            raise UserCodeError(
                f"{at} cannot be decoded: {type(error).__name__}: {message_of(error)}",
                step=f"decode of {self.topic}", trace="".join(traceback.format_exception(error)), sample=shown,
                is_general=True,
            ) from error  # fmt: skip


_SHOWN_CHARS: Final = 500
