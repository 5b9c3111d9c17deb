"""An Apache Kafka broker in KRaft mode for tests; `kill` and `start` take it away and bring it back."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

START_SECONDS_MAX = 90
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


QUIET: dict[str, Any] = {"error_cb": lambda _error: None, "log_level": 0}  # brokers come and go here


class KafkaBroker:
    """One process, broker and controller, on two loopback ports."""

    def __init__(self, jars: str, folder: Path) -> None:
        self.folder = folder
        port, controller = _free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self.admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        self._properties = folder / "server.properties"
        self._properties.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""
        )
        home = os.environ.get("JAVA_HOME")
        self._java = [
            f"{home}/bin/java" if home else "java", "-Xms96m", "-Xmx384m", "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*",
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None
        self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties))

    def _run(self, *command: str) -> None:
        done = subprocess.run([*self._java, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with open(self.folder / "kafka.log", "ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._properties)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(START_SECONDS_MAX * 4):
            assert self.process.poll() is None, (self.folder / "kafka.log").read_text()[-2_000:]
            try:
                if self.admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                threading.Event().wait(0.25)
        raise AssertionError(f"Kafka did not start; see {self.folder / 'kafka.log'}")

    def kill(self) -> None:
        """End it as a power cut does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic."""
        for future in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        for future in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(30)

    def cut(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages before an offset."""
        for future in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(30)

    def producer(self, **settings: Any) -> Producer:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.servers, **QUIET, "linger.ms": 0, **given})

    def send(self, topic: str, partition: int, *values: bytes | None) -> None:
        """Messages without a key."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def committed(self, topic: str, partitions: int = 1) -> list[tuple[bytes | None, bytes | None]]:
        """(key, value) of each message that a reader of committed messages sees."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers, "group.id": "test", "isolation.level": "read_committed",
                "enable.partition.eof": True, "enable.auto.commit": False, **QUIET,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[tuple[bytes | None, bytes | None]] = []
        ends = 0
        while ends < partitions:
            message = consumer.poll(30)
            assert message is not None, "no answer"
            error = message.error()
            if error is None:
                found.append((message.key(), message.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
        consumer.close()
        return found
