"""SQL over the PStates and depots of a store: DuckDB inside, which reads nothing but these tables.

A table is `module.pstate`, `module."pstate.likes"` for a further table of a PState, or `module.depot`; where there is
one module its tables need no module before them. All tables of a topology are read as of one entry, that of the first
look. Whatever a query says, it opens no file, no address and no extension, and ends at its bounds of time, rows and
memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import polars as pl

from tidemill.clients.module import ModuleClient
from tidemill.clients.topology import info_of
from tidemill.definition.definition import StoredDepot, StoredTopology, plain_name
from tidemill.journal.clock import Clock, SystemClock
from tidemill.journal.definition_log import module_names
from tidemill.scans.bounds import Bounds
from tidemill.scans.depots import DepotScan, depot_scan
from tidemill.scans.frames import Scan, lazy_frame
from tidemill.scans.pstates import pstate_scan, schema_of, table_names
from tidemill.store.objects import ObjectStore
from tidemill.values.errors import BadInput, BudgetExceeded, CorruptState, TidemillError
from tidemill.values.extras import needing

if TYPE_CHECKING:
    import duckdb

SECONDS: Final = 60.0
ROWS: Final = 10_000
MEMORY_MB: Final = 1_024
_LOOK_SECONDS: Final = 0.05
_T = TypeVar("_T")


class SqlAnswer(NamedTuple):
    """`is_cut`: there are more rows than were asked for."""

    columns: list[str]
    rows: list[list[Any]]
    is_cut: bool


@dataclass
class Limits:
    """What one query may take. `memory_mb` is for DuckDB, and once more for the rows that it reads.

    `deadline` is when it must have ended, of the clock that `read` and `check_time` ask.
    """

    seconds: float = SECONDS
    rows: int = ROWS
    memory_mb: int = MEMORY_MB
    clock: Clock = field(default_factory=SystemClock)
    deadline: float = field(init=False)
    left_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("rows", self.rows), ("memory", self.memory_mb)):
            if value <= 0:
                raise BadInput(f"The bound of {name} is above 0, not {value}.")
        self.left_bytes = self.memory_mb * 1024 * 1024
        self.deadline = self.clock.monotonic_ms() + self.seconds * 1000

    def read(self, frame: pl.DataFrame) -> None:
        """Count rows that were read. Raises BudgetExceeded."""
        self.check_time()
        self.left_bytes -= int(frame.estimated_size())
        if self.left_bytes < 0:
            advice = "Filter by key columns, name fewer columns, or allow more memory."
            raise BudgetExceeded(f"The query reads more than {self.memory_mb:,} MB of rows. {advice}")

    def check_time(self) -> None:
        """Raises BudgetExceeded."""
        if self.is_over:
            raise self.late()

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.clock.monotonic_ms() > self.deadline

    def too_large(self) -> BudgetExceeded:
        """The error of a query that needs too much memory."""
        return BudgetExceeded(
            f"The query needs more than {self.memory_mb:,} MB of memory; ask for less, or allow more."
        )

    def late(self) -> BudgetExceeded:
        """The error of a query that took too long."""
        return BudgetExceeded(
            f"The query took more than {self.seconds:g} s and was ended; ask for less, or for longer."
        )


@dataclass
class _SqlTable:
    """A table of a store: what it is, and how to open it at the first look."""

    name: str
    schema: dict[str, Any]
    open: Callable[[], Scan]
    limits: Limits
    failed: list[TidemillError]

    def read(self, bounds: Bounds, columns: Sequence[str], batch_rows: int) -> Iterator[pl.DataFrame]:
        """As the scan reads it, within the limits of the query; what goes wrong is kept for its caller."""
        try:
            for frame in self.open().read(bounds, columns, batch_rows):
                self.limits.read(frame)
                yield frame
        except TidemillError as error:
            self.failed.append(error)
            raise


class _StoreTables:
    """The tables of modules, each topology pinned to the entry that was its newest at the first look at it, and each
    depot to what it held then.
    """

    def __init__(self, store: ObjectStore, limits: Limits, failed: list[TidemillError]) -> None:
        self._store, self._limits, self._failed = store, limits, failed
        self._pins: dict[tuple[str, str], int] = {}
        self._depots: dict[tuple[str, str], Scan] = {}
        self._lock = threading.Lock()
        self.damaged: dict[str, CorruptState] = {}
        self.names: list[str] = []

    def of_modules(self, modules: Sequence[str]) -> list[_SqlTable]:
        """The tables of a module, or what stands for those of modules that SQL takes for one. Raises UnknownName."""
        if len(modules) == 1:
            return self._known(modules[0])
        text = f"The modules {_listed(modules)} have one name in SQL: say by --module which one is meant."
        found = [table for module in modules for table in self._known(module)]
        return [_refusing(same, text) for same in _by_name(found, attrgetter("name"))]

    def _known(self, module: str) -> list[_SqlTable]:
        """The tables of a module; none where it is damaged: queries over other modules are answered all the same."""
        try:
            return self._of_module(module)
        except CorruptState as error:
            self.damaged[module] = error
            return []

    def _of_module(self, module: str) -> list[_SqlTable]:
        """The PStates and depots of a module, by the names that they have in SQL. Raises UnknownName."""
        client = ModuleClient(self._store, module)
        definition = client.definition()
        found = [each for topology in definition.topologies.values() for each in self._pstates(client, topology)]
        taken = {source.name.casefold() for source in found}
        for depot in definition.depots.values():
            if depot.has_log:
                name = plain_name(depot.name)
                name = depot.name if name.casefold() in taken else name
                found.append(self._depot(client, name, depot))
        together = _by_name(found, attrgetter("name"))
        return [same[0] if len(same) == 1 else _refusing(same, self._clash(module, same)) for same in together]

    @staticmethod
    def _clash(module: str, tables: Sequence[_SqlTable]) -> str:
        names = _listed(table.name for table in tables)
        return f"The tables {names} of module {module} have one name in SQL: read them by tidemill.scan, or rename one."

    def _pstates(self, client: ModuleClient, topology: StoredTopology) -> Iterator[_SqlTable]:
        for stored in topology.pstates.values():
            if stored.is_private:
                continue
            layout = info_of(stored, client.migrations).layout
            plain = plain_name(stored.name) or stored.name
            for table, table_id in table_names(layout).items():
                name = f"{plain}.{table}" if table else plain
                opened = partial(self._pinned, client, topology.name, stored.name, table)
                yield self._source(name, schema_of(layout.tables[table_id]), opened)

    def _pinned(self, client: ModuleClient, topology: str, pstate: str, table: str) -> Scan:
        place = client.module, topology
        with self._lock:  # DuckDB opens tables in several threads
            found = pstate_scan(client, pstate, table, at=self._pins.get(place))
            self._pins.setdefault(place, found.entry)
        return found

    def _held(self, client: ModuleClient, depot: str) -> Scan:
        place = client.module, depot
        with self._lock:
            if place not in self._depots:
                self._depots[place] = depot_scan(client, depot)
            return self._depots[place]

    def _depot(self, client: ModuleClient, name: str, depot: StoredDepot) -> _SqlTable:
        columns = DepotScan("", "", depot, 0, ()).schema
        return self._source(name, columns, partial(self._held, client, depot.name))

    def _source(self, name: str, schema: dict[str, Any], opened: Callable[[], Scan]) -> _SqlTable:
        return _SqlTable(name, schema, opened, self._limits, self._failed)


def _by_name(found: Iterable[_T], name: Callable[[_T], str]) -> list[list[_T]]:
    """Those that have one name for SQL, which sees no capital letters, together."""
    together: dict[str, list[_T]] = {}
    for each in found:
        together.setdefault(name(each).casefold(), []).append(each)
    return list(together.values())


def _refusing(tables: Sequence[_SqlTable], text: str) -> _SqlTable:
    """In the place of tables that SQL cannot tell apart, one that says so to whoever reads it, and to nobody else."""

    def refuse() -> Scan:
        raise BadInput(text)

    return replace(tables[0], schema={"unreadable": pl.String()}, open=refuse)


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)


def run_sql(store: ObjectStore, query: str, module: str = "", limits: Limits | None = None) -> SqlAnswer:
    """The answer to one SELECT over the modules of a store, or over those of one `module`.

    Raises:
        BadInput: the query is not one SELECT, or is wrong; DuckDB is not installed.
        UnknownName: there is no such module.
        CorruptState: what it reads is damaged, or the one `module` is.
        BudgetExceeded: it takes more time or memory than the limits allow.
        SnapshotExpired: what it reads was collected meanwhile.
    """
    with needing("sql"):
        import duckdb
    limits = limits or Limits()
    failed: list[TidemillError] = []
    tables = _StoreTables(store, limits, failed)
    try:
        with duckdb.connect(":memory:", config=_CONFIG | {"memory_limit": f"{limits.memory_mb}MB"}) as connection:
            _check_query(duckdb, query)
            names = [module] if module else [name for name in module_names(store) if name.casefold() not in _OWN]
            _register(connection, tables, names)
            if module and tables.damaged:
                raise tables.damaged[module]
            with _interrupted(connection, limits):
                return _answer(connection, query, limits)
    except duckdb.Error as error:
        if failed:
            raise failed[0] from error
        raise _explained(duckdb, error, limits, tables) from error


_CONFIG: Final[dict[str, Any]] = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
_CATALOG: Final = "memory"
"""What DuckDB calls a database in memory; it stands before schemas: a module may be called as a catalog."""

_OWN: Final = {"information_schema", "pg_catalog"}
"""Schemas of DuckDB itself: a module that is called so has no tables, and takes none from the others."""

_ALL_TABLES: Final = re.compile(r"\s*show\s+all\s+tables\s*;?\s*", re.IGNORECASE)
_OWN_TABLES: Final = (
    "SELECT schema AS module, name, column_names, column_types FROM (SHOW ALL TABLES) WHERE NOT temporary"
)
"""Without the frames behind the tables, which are no matter for people."""

_LOCKED: Final = (
    "LOAD icu",
    "SET enable_progress_bar = false",
    "SET TimeZone = 'UTC'",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def _check_query(duckdb: Any, query: str) -> None:
    statements = duckdb.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise BadInput("The query is one SELECT (or FROM, DESCRIBE, SHOW, SUMMARIZE): tables can only be read.")


def _register(connection: duckdb.DuckDBPyConnection, tables: _StoreTables, modules: Sequence[str]) -> None:
    numbers = count()
    for same in _by_name(modules, str):
        schema = f"{_CATALOG}.{_quoted(same[0])}"
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        for source in tables.of_modules(same):
            name = f"frame/{next(numbers)}"  # nothing in a store has such a name
            connection.register(name, lazy_frame(source, f"{same[0]}/{source.name}"))
            tables.names.append(f"{_plain(same[0])}.{_plain(source.name)}")
            connection.execute(f"CREATE VIEW {schema}.{_quoted(source.name)} AS SELECT * FROM {_quoted(name)}")
    if len(modules) == 1:
        connection.execute(f"USE {_CATALOG}.{_quoted(modules[0])}")
    for statement in _LOCKED:
        connection.execute(statement)


def _plain(name: str) -> str:
    """A name as people write it in SQL: quoted where it must be."""
    return name if name.isascii() and name.isidentifier() else _quoted(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _interrupted(connection: duckdb.DuckDBPyConnection, limits: Limits) -> Iterator[None]:
    """Interrupt what runs on the connection when its time is up, again and again until it ends."""
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(_LOOK_SECONDS):
            if limits.is_over:
                connection.interrupt()

    watcher = threading.Thread(target=watch, name="tidemill-sql-clock", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_done.set()
        watcher.join()


def _answer(connection: duckdb.DuckDBPyConnection, query: str, limits: Limits) -> SqlAnswer:
    found = (
        connection.sql(_OWN_TABLES if _ALL_TABLES.fullmatch(query) else query).limit(limits.rows + 1).to_arrow_table()
    )
    limits.check_time()
    if found.nbytes > limits.memory_mb * 1024 * 1024:
        raise limits.too_large()
    try:
        columns = [column.to_pylist() for column in found.columns]
    except (OverflowError, ValueError) as error:
        raise BadInput(f"The answer has a value that Python has not ({error}); cast it to text.") from error
    rows = [list(row) for row in zip(*columns, strict=True)]
    return SqlAnswer(list(found.column_names), rows[: limits.rows], len(rows) > limits.rows)


def _explained(duckdb: Any, error: Exception, limits: Limits, tables: _StoreTables) -> TidemillError:
    if isinstance(error, duckdb.InterruptException) or limits.is_over:
        return limits.late()
    if isinstance(error, duckdb.OutOfMemoryException):
        return limits.too_large()
    text = str(error).strip()
    if text.startswith(_NO_TABLE):  # DuckDB proposes tables of its own, which nobody means
        text = f"{text.partition(_PROPOSAL)[0].strip()}\nThere is {_some(tables.names) or 'no table'}."
    missing = "".join(f"\nDamaged, and left out: {found}" for found in tables.damaged.values())
    return BadInput(f"The query cannot be answered: {text}{missing}")


def _some(names: Sequence[str]) -> str:
    """The first of many names."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


_NO_TABLE: Final = "Catalog Error: Table with name"
_PROPOSAL: Final = "Did you mean"
_NAMED_MAX: Final = 20
