"""`QueryClient`: calls of a query topology through a gateway."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Literal

from tidemill.client.connection import Connection, Request, in_url, packed
from tidemill.client.paths import value_to_json
from tidemill.values.notebook import ShownInNotebooks
from tidemill.values.object_info import ObjectInfo


class QueryClient(ShownInNotebooks):
    """One query of one module; safe for several threads. Its steps run in the gateway; one that is to run on Spark does
    so only with `engine` "local".
    """

    def __init__(
        self, connection: Connection, module: str, name: str, engine: Literal["local", "spark"] | None = None
    ) -> None:
        self.name = name
        self._params = None if engine is None else {"engine": engine}
        self._connection = connection
        self._path = f"/modules/{in_url('module', module)}/queries/{in_url('query', name)}"
        self.get_object_info()

    def __repr__(self) -> str:
        return f"QueryClient({self._path!r})"

    def _facts(self) -> dict[str, Any]:
        info = self.get_object_info()
        return {"module": info.module_name, "query": info.name, "partitions": info.num_partitions}

    def invoke(self, *args: Any) -> Any:
        """The result of the query for these arguments.

        Raises:
            BadInput: an argument is no data, there are more or fewer than inputs, or the query is to run on Spark.
            NeedsCode: the gateway has not the module's code, or that of another version.
            UserCodeError: a function of the module raised.
            NotOneValue: it gave no result, or several.
            BudgetExceeded: it takes more time, rows, bytes or depth than it may.
            StoreUnavailable: the gateway or its store did not answer for too long, or is busy.
        """
        body = packed([value_to_json(arg) for arg in args], f"An argument of the query '{self.name}'")
        return self._connection.send(Request("POST", f"{self._path}/invoke", body, params=self._params))

    def invoke_async(self, *args: Any) -> Future[Any]:
        """`invoke` without waiting; the future gives or raises what `invoke` does."""
        return self._connection.later(lambda: self.invoke(*args))

    def get_object_info(self) -> ObjectInfo:
        """Whose the query is, its name and the number of tasks that it runs on. Raises UnknownName."""
        found = self._connection.send(Request("GET", self._path))
        return ObjectInfo(found["module_name"], found["name"], found["num_partitions"])
