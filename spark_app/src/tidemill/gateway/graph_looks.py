"""How the task graphs of a store stand, for those who look at many at once or follow one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final

from tidemill.gateway import faults
from tidemill.gateway.modules import Modules
from tidemill.graphs.run_log import RunEntry, RunLog, graph_names
from tidemill.values.errors import StoreUnavailable, TidemillError, UnknownName

GRAPHS_MAX: Final = 1_000
"""Graphs of a list: of more, those whose names come last."""

ENTRIES_MAX: Final = 100
"""Of the log of one graph's run."""

THREADS: Final = 8
"""Graphs that are asked at once."""


def newest_entry(log: RunLog, graph: str) -> tuple[int, RunEntry]:
    """The last entry of a graph's run and its number. Raises UnknownName where there is no such graph."""
    head = log.head()
    if head is None:
        raise UnknownName(f"There is no graph {graph!r} here.", graph=graph)
    return head


class GraphList:
    """The newest entry of each graph's run; those that ended are not asked again. For one thread."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._logs: dict[str, RunLog] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tidemill-graphs")

    def look(self) -> dict[str, Any]:
        """`graphs`, the last written first, and how many are `left_out`; `trouble` of one that cannot be read.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        store = self._modules.store
        all_of_them = graph_names(store)
        names = all_of_them[-GRAPHS_MAX:]
        self._ended = {name: self._ended[name] for name in names if name in self._ended}
        self._logs = {name: self._logs.get(name) or RunLog(store, name) for name in names if name not in self._ended}
        found = [one for one in self._threads.map(_newest, self._logs.items()) if one is not None]
        self._ended |= {one["graph"]: one for one in found if one.get("kind") == "finish"}
        known = {one["graph"]: one for one in (*self._ended.values(), *found)}
        graphs = sorted(known.values(), key=lambda one: one.get("written_ms", 0), reverse=True)
        return {"graphs": graphs, "left_out": len(all_of_them) - len(names)}

    def close(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False)


def _newest(place: tuple[str, RunLog]) -> dict[str, Any] | None:
    name, log = place
    try:
        entry = log.newest()
    except StoreUnavailable:
        raise
    except TidemillError as error:
        return {"graph": name, "trouble": faults.text_of(error)}
    return None if entry is None else summary(name, entry)


def summary(graph: str, entry: RunEntry) -> dict[str, Any]:
    """How a graph's run stands, in short."""
    return {
        "graph": graph, "kind": entry.kind, "state": entry.state, "engine": entry.engine, "wave": entry.wave,
        "seconds": entry.seconds, "written_ms": entry.time_ms, "text": entry.text, "nodes": len(entry.nodes),
        "began_ms": entry.began_ms, "starts": entry.starts, "checkpoints": entry.checkpoints,
        "lag": sum(node.lag for node in entry.nodes),
        "dropped_rows": sum(node.dropped_rows for node in entry.nodes),
        "rows_read": sum(node.rows_in for node in entry.nodes if not node.streams),
        "datasets": [record.id for record in entry.datasets],
    }  # fmt: skip


class GraphLook:
    """One graph's run: its nodes as its newest entry has them, and its last entries. For one thread."""

    def __init__(self, modules: Modules, graph: str) -> None:
        self._log, self._graph = RunLog(modules.store, graph), graph
        self._lines: list[dict[str, Any]] = []
        self._known = 0

    def look(self) -> dict[str, Any]:
        """Its summary, with `nodes` and `log`, oldest entry first.

        Raises:
            UnknownName: there is no such graph.
            StoreUnavailable: the store does not answer.
        """
        number, entry = newest_entry(self._log, self._graph)
        if number > self._known:
            new = self._log.tail(min(ENTRIES_MAX, number - self._known), number + 1)
            self._lines = [*self._lines, *(_line(*one) for one in new)][-ENTRIES_MAX:]
            self._known = number
        nodes = [asdict(node) for node in entry.nodes]
        return {**summary(self._graph, entry), "nodes": nodes, "log": self._lines}


def _line(number: int, entry: RunEntry) -> dict[str, Any]:
    return {
        "entry": number, "kind": entry.kind, "written_ms": entry.time_ms, "wave": entry.wave,
        "seconds": entry.seconds, "checkpoint_seconds": entry.checkpoint_seconds, "text": entry.text,
    }  # fmt: skip
