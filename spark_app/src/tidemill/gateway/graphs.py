"""Routes for task graphs and Datasets: what graphs of the store did, how far they are, and what they left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from tidemill.gateway import schemas
from tidemill.gateway.exchange import Gateway, answer, answered, check_query, gateway_of, number_of, sent, ticket_of
from tidemill.gateway.faults import unfitting
from tidemill.gateway.graph_looks import THREADS, GraphLook, newest_entry
from tidemill.gateway.live import FollowingStream, LiveStream, changes
from tidemill.graphs.dataset import FOLDER, DatasetRecord, read_record
from tidemill.graphs.dataset_rows import Room, data_rows, read_rows
from tidemill.graphs.drawing import drawn
from tidemill.graphs.run_log import RunEntry, RunLog
from tidemill.store.folders import folders_in
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import UnknownName
from tidemill.values.names import is_folder_name

DATASETS_MAX: Final = 1_000
"""Datasets of a list: of more, those whose names come last."""

WINDOWS_MAX: Final = 20
"""Of a Dataset with a Dataset for each window: those whose names come last."""

ROWS_MAX: Final = 1_000
"""Rows of a Dataset in one answer."""

ROWS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes in memory of the rows of a Dataset in one answer."""

OBJECTS_MAX: Final = 1_000
"""Objects of a Dataset that are listed."""

routes = APIRouter(tags=["graphs"])


@routes.get("/graphs", responses=schemas.answers(schemas.ANYTHING))
async def graphs(request: Request) -> Response:
    """The task graphs of the store with how each stands, the last written first."""
    gateway = _for_all(request)
    return answer(request, await gateway.graph_list.get())


@routes.get("/graphs/subscribe", responses=schemas.event_answers(), response_class=Response)
async def graphs_events(request: Request) -> Response:
    """The same as server-sent events `graphs`, where something changed."""
    gateway = _for_all(request)
    return LiveStream(gateway.subscriptions, gateway.graph_list, changes("graphs"))


@routes.get("/graphs/{graph}", responses=schemas.answers(schemas.ANYTHING))
async def graph_run(request: Request, graph: str) -> Response:
    """A graph's run: its nodes with what they have done, and the entries of its log."""
    gateway = _for_all(request)
    return await answered(request, lambda: GraphLook(gateway.modules, _checked(graph)).look())


@routes.get("/graphs/{graph}/plan", responses=schemas.picture_answers(), response_class=Response)
async def graph_plan(request: Request, graph: str) -> Response:
    """The nodes of a graph and its streams as SVG."""
    gateway = _for_all(request)

    def draw() -> bytes:
        return drawn(_newest(gateway, graph).nodes).encode()

    return await sent(request, draw, schemas.SVG)


@routes.get("/graphs/{graph}/subscribe", responses=schemas.event_answers(), response_class=Response)
async def graph_events(request: Request, graph: str) -> Response:
    """A graph's run as it goes on: server-sent events `graph`, where something changed."""
    gateway = _for_all(request)
    await gateway.work.read(lambda: _newest(gateway, graph))
    return FollowingStream(gateway.subscriptions, gateway.graphs, (graph,), changes("graph"))


@routes.get("/datasets", responses=schemas.answers(schemas.ANYTHING))
async def datasets(request: Request) -> Response:
    """The Datasets of the store, the newest first."""
    store = _for_all(request).modules.store

    def read() -> Any:
        names = list(folders_in(store, FOLDER))
        shown = names[-DATASETS_MAX:]
        with ThreadPoolExecutor(THREADS, thread_name_prefix="tidemill-datasets") as threads:
            records = [record for found in threads.map(lambda name: _records(store, name), shown) for record in found]
        records.sort(key=lambda record: (record.created_ms, record.id), reverse=True)
        return {"datasets": [_summary(record) for record in records], "left_out": len(names) - len(shown)}

    return await answered(request, read)


_ROWS_QUERY: Final[list[dict[str, Any]]] = [
    {"name": "start", "in": "query", "required": False, "schema": schemas.OFFSET},
    {
        "name": "limit",
        "in": "query",
        "required": False,
        "schema": {"type": "integer", "minimum": 1, "maximum": ROWS_MAX},
    },
]


@routes.get(
    "/datasets/{dataset:path}/rows",
    responses=schemas.answers(schemas.ANYTHING),
    openapi_extra={"parameters": _ROWS_QUERY},
)
async def dataset_rows(request: Request, dataset: str) -> Response:
    """Some rows of a Dataset as lists, in the order of its objects: at most `limit` (100) from row `start` on."""
    check_query(request, "start", "limit")
    store = _for_all(request).modules.store
    start, limit = number_of(request, "start") or 0, number_of(request, "limit")
    limit = 100 if limit is None else limit
    if not 1 <= limit <= ROWS_MAX:
        raise unfitting(f"limit is a number from 1 to {ROWS_MAX}.")

    def read() -> Any:
        record, grow = read_record(store, _checked(dataset, 2)), ticket_of(request).grow
        frame = read_rows(store, record, start, limit, grow, Room(ROWS_BYTES_MAX))
        return {"columns": frame.columns, "rows": data_rows(frame)}

    return await answered(request, read)


@routes.get("/datasets/{dataset:path}", responses=schemas.answers(schemas.ANYTHING))
async def dataset_info(request: Request, dataset: str) -> Response:
    """A Dataset: its columns with their types, and its objects."""
    store = _for_all(request).modules.store

    def read() -> Any:
        record = read_record(store, _checked(dataset, 2))
        columns = read_rows(store, record, 0, 0, ticket_of(request).grow, Room(ROWS_BYTES_MAX)).schema
        return {
            **_summary(record),
            "columns": {name: str(kind) for name, kind in columns.items()},
            "parts": [
                {"channel": each.channel, "partition": each.partition, "rows": each.rows, "bytes": each.bytes}
                for each in record.objects[:OBJECTS_MAX]
            ],
        }

    return await answered(request, read)


def _for_all(request: Request) -> Gateway:
    """The gateway, if it serves all of a store: graphs and Datasets are of no module.

    Raises:
        UnknownName: it serves one module only.
    """
    gateway = gateway_of(request)
    if gateway.modules.only is not None:
        raise UnknownName(f"This gateway serves the module {gateway.modules.only} only.", name=gateway.modules.only)
    return gateway


def _newest(gateway: Gateway, graph: str) -> RunEntry:
    """The last entry of a graph's run. Raises UnknownName."""
    return newest_entry(RunLog(gateway.modules.store, _checked(graph)), graph)[1]


def _checked(name: str, depth: int = 1) -> str:
    """A name that may be a folder's, or with `depth` 2 that of one in it. Raises UnknownName."""
    parts = name.split("/")
    if len(parts) > depth or not all(is_folder_name(part) for part in parts):
        raise UnknownName(f"There is no {name[:200]!r} here.", name=name)
    return name


def _records(store: ObjectStore, dataset: str) -> list[DatasetRecord]:
    """The Dataset of a folder, or those of its last windows; none where it is being made, or was deleted just now."""
    try:
        return [read_record(store, dataset)]
    except UnknownName:
        windows = list(folders_in(store, f"{FOLDER}/{dataset}"))[-WINDOWS_MAX:]
    found = []
    for window in windows:
        with suppress(UnknownName):
            found.append(read_record(store, f"{dataset}/{window}"))
    return found


def _summary(record: DatasetRecord) -> dict[str, Any]:
    return {
        "dataset": record.id, "kind": record.kind, "key": record.key_columns, "graph": record.graph,
        "node": record.node, "rows": sum(each.rows for each in record.objects), "objects": len(record.objects),
        "bytes": sum(each.bytes for each in record.objects), "created_ms": record.created_ms,
    }  # fmt: skip
