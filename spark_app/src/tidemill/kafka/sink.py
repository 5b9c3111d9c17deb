"""`KafkaSink`: what a topology sends to a topic of Kafka, a microbatch as one transaction."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from tidemill.api.aggregators import Agg
from tidemill.api.arguments import Expr, Helpers
from tidemill.api.block import Block
from tidemill.kafka.connection import checked_config, checked_seconds, checked_topic, quiet, unavailable
from tidemill.language.objects import TaskGlobalContext, TaskGlobalObject
from tidemill.language.operations import Ops
from tidemill.values.errors import BadInput, CorruptState, UserCodeError, message_of
from tidemill.values.json import strict_json
from tidemill.values.threads import in_thread

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer, TopicPartition

Encode = Literal["json", "string", "bytes"] | Callable[[Any], bytes | None]
Pair = tuple[bytes | None, bytes | None]
STEPS_MAX: Final = 1 << 20
"""A microbatch has fewer supersteps than this."""

_ABORT_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.1


def _encoded(value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as none, and anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else strict_json(value).encode()


def _json(value: Any) -> bytes | None:
    return None if value is None else strict_json(value).encode()


def _string(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise BadInput(f"encode='bytes' takes bytes, not {type(value).__name__}")


_ENCODERS: Final[dict[str, Callable[[Any], bytes | None]]] = {"json": _json, "string": _string, "bytes": _bytes}


def to_kafka(block: Block, sink: str, key: Any, value: Any) -> Block:
    """Ends a batch block: sends each row's key and value through the sink, all of a microbatch as one transaction.

    Used as `.macro(to_kafka, "*sink", "*key", "*value")`. It is the aggregation of its block; the rows of a microbatch
    come together on task 0.
    """
    rows, number, info = (Helpers.gen_var(name) for name in ("rows", "id", "info"))
    return (
        block.global_partition()
        .agg(Agg.list(Expr(Ops.TUPLE, key, value))).out(rows)
        .each(Ops.CURRENT_MICROBATCH_ID).out(number)
        .each(Ops.MODULE_INSTANCE_INFO).out(info)
        .each(_write, sink, number, info, rows)
    )  # fmt: skip


def _write(sink: Any, microbatch_id: int, info: Mapping[str, Any], rows: Sequence[Sequence[Any]]) -> None:
    if not isinstance(sink, KafkaSink):
        raise BadInput(f"to_kafka writes to a KafkaSink, not to {type(sink).__name__}: declare_object(…, KafkaSink(…))")
    sink.write(Mark(microbatch_id, info["superstep"], info["instance"]), rows, is_sent=not info["is_probe"])


class Mark(NamedTuple):
    """What a transaction leaves in Kafka: which step of which microbatch sent it, of which topology (its name and id).

    A block that is run for several rows sends in several supersteps of one microbatch; a retry has the same ones.
    """

    microbatch_id: int
    superstep: int
    instance: str

    @property
    def offset(self) -> int:
        """Both numbers as one, which rises from one transaction to the next."""
        return self.microbatch_id * STEPS_MAX + self.superstep


class KafkaSink(TaskGlobalObject):
    """A topic to which one place of a module sends: `setup.declare_object("*totals", KafkaSink("totals", …))`, and
    `.macro(to_kafka, "*totals", "*key", "*value")` at the end of a batch block.

    Exactly once for readers with `isolation.level=read_committed`: the messages of a microbatch are one transaction,
    which also commits the microbatch's ID as the offset of a consumer group that has the transactional ID as its name.
    A retry finds the ID there and sends nothing. A second sender with the same transactional ID, such as a leader that
    was replaced, is fenced by Kafka.
    """

    is_used_once = True

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str,
        *,
        transactional_id: str | None = None,
        encode: Encode = "json",
        config: Mapping[str, Any] | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        """`transactional_id` is unique in the Kafka cluster; without it, it is made of the names of the module and of
        the object. `encode` makes bytes of a value: "json", "string", "bytes" or a function; None is a tombstone. Keys
        are bytes, texts or None, anything else is JSON. `config` are more settings of librdkafka. A transaction may
        take `timeout_seconds`.

        Raises:
            BadInput: an argument is wrong, or `confluent-kafka` is not installed.
        """
        checked_topic(topic, bootstrap_servers)
        if not callable(encode) and encode not in _ENCODERS:
            raise BadInput(f"encode is 'json', 'string', 'bytes' or a function of a value, not {encode!r}.")
        if transactional_id is not None and (not isinstance(transactional_id, str) or not transactional_id):
            raise BadInput(f"transactional_id is a text that is not empty, not {transactional_id!r}.")
        self.topic = topic
        self.transactional_id = transactional_id
        self._encode = encode if callable(encode) else _ENCODERS[encode]
        self._timeout = checked_seconds("timeout_seconds", timeout_seconds)
        own = {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, "enable.idempotence": True}
        self._config = checked_config(config, own)

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r})"

    # --- lifecycle ---

    def prepare_for_task(self, context: TaskGlobalContext) -> None:
        """Nothing is connected yet: each transaction has a connection of its own."""
        self.transactional_id = self.transactional_id or f"tidemill-{context.module}-{context.name.lstrip('*')}"
        self._lock = threading.Lock()
        self._name = context.name

    # --- a microbatch ---

    def write(self, mark: Mark, rows: Sequence[Sequence[Any]], is_sent: bool = True) -> None:
        """Send (key, value) of all rows as one transaction, unless this was sent. `is_sent` false: only encode
        them, for a part of a microbatch that is run to find a record to blame.

        Raises:
            UserCodeError: a value cannot be encoded.
            ExternalUnavailable: Kafka does not answer, or another sender took over; the attempt is tried again.
            CorruptState: the transactional ID is another sink's, or Kafka has later microbatches than this one.
        """
        mark = mark._replace(instance=f"{mark.instance} {self._name}")
        if not rows:
            return
        transaction = _Transaction(self._config, self.transactional_id or "", self.topic, self._timeout)
        messages = [self._encoded(row) for row in rows]
        if not is_sent:
            return
        with self._lock:
            try:
                _within(self._timeout, lambda: transaction.send(mark, messages))
            except CorruptState:
                raise
            except Exception as error:
                raise unavailable(f"a transaction of {self.transactional_id} to {self.topic}", error) from error

    def _encoded(self, row: Sequence[Any]) -> Pair:
        try:
            return _encoded(row[0]), self._encode(row[1])
        except Exception as error:
            text = f"A message to {self.topic} cannot be encoded: {type(error).__name__}: {message_of(error)}"
            trace = "".join(traceback.format_exception(error))
            raise UserCodeError(text, step=f"encode for {self.topic}", trace=trace, sample=repr(row)[:500]) from error


class _Transaction:
    """One transaction with a producer of its own: what one before it left, or knew, is no matter.

    librdkafka waits for ever at times for a coordinator that it knew before a broker was restarted.
    """

    def __init__(self, config: Mapping[str, Any], transactional_id: str, topic: str, seconds: float) -> None:
        self._settings = {**config, "transactional.id": transactional_id, "error_cb": quiet}
        self._id, self._topic, self._seconds = transactional_id, topic, seconds

    def send(self, mark: Mark, messages: Sequence[Pair]) -> None:
        """Fence every other sender, let Kafka end its transaction, and only then ask what was sent."""
        from confluent_kafka import Consumer, Producer

        producer = Producer(self._settings)
        producer.init_transactions(self._seconds)
        kept = {name: value for name, value in self._settings.items() if name not in _OF_PRODUCERS}
        group = Consumer({**kept, "group.id": self._id, "enable.auto.commit": False})
        try:
            if not self._is_sent(group, mark):
                self._commit(producer, group, mark, messages)
        finally:
            group.close()

    def _is_sent(self, group: Consumer, mark: Mark) -> bool:
        found = self._marked(group)
        sent, by = found.offset, found.metadata or ""
        if sent < 0:
            return False
        if by != mark.instance:
            text = f"The transactional ID {self._id} is that of another sink"
            raise CorruptState(f"{text} ({by}; this is {mark.instance}). Give this one a transactional_id of its own.")
        if sent // STEPS_MAX > mark.microbatch_id:
            text = f"{self._id} has sent microbatch {sent // STEPS_MAX}, and this is {mark.microbatch_id}."
            advice = "If an older copy of the store was put back, give the sink a new transactional_id."
            raise CorruptState(f"{text} {advice}")
        return bool(sent >= mark.offset)

    def _marked(self, group: Consumer) -> TopicPartition:
        """What the last transaction left; a group's coordinator may still be on its way to work."""
        from confluent_kafka import KafkaException, TopicPartition

        deadline = time.monotonic() + self._seconds
        while True:
            try:
                (found,) = group.committed([TopicPartition(self._topic, 0)], timeout=self._seconds)
                return found
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                group.poll(_LOOK_SECONDS)

    def _commit(self, producer: Producer, group: Consumer, mark: Mark, messages: Sequence[Pair]) -> None:
        from confluent_kafka import TopicPartition

        producer.begin_transaction()
        try:
            for key, value in messages:
                self._produce(producer, key, value)
            place = TopicPartition(self._topic, 0, mark.offset, metadata=mark.instance)
            producer.send_offsets_to_transaction([place], group.consumer_group_metadata(), self._seconds)
            producer.commit_transaction(self._seconds)
        except Exception:
            with contextlib.suppress(Exception):  # the next one ends it, too; this lets readers go on meanwhile
                producer.abort_transaction(_ABORT_SECONDS)
            raise

    def _produce(self, producer: Producer, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                return producer.produce(self._topic, value, key)
            except BufferError:  # its queue is full, and empties while we wait
                producer.poll(_LOOK_SECONDS)


def _within(seconds: float, call: Callable[[], None]) -> None:
    """Calls in a thread that nobody waits for longer than this: librdkafka does not keep to each time that it is given.

    What the call does later does no harm: who comes next fences its producer.
    """
    outcome = in_thread("tidemill Kafka transaction", call)
    try:
        outcome.result(seconds)
    except FutureTimeout:
        if outcome.done():
            raise
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


_OF_PRODUCERS: Final = {"transactional.id", "enable.idempotence"}
