"""`Client`: the modules behind one gateway."""

from __future__ import annotations

import os
import time
from typing import Any, Literal

from tidemill.client.connection import RETRY_SECONDS, Connection, Request, in_url, packed
from tidemill.client.depot import DepotClient
from tidemill.client.pstate import PStateClient
from tidemill.client.quarantine import QuarantineClient
from tidemill.client.query import QueryClient
from tidemill.clients.status import TopologyStatus
from tidemill.values.call_checks import checked_time
from tidemill.values.errors import BadInput, OptionError


class Client:
    """A connection to a gateway (several kept-alive ones underneath); safe for several threads; close it when done.

    `url` is the gateway's, such as http://127.0.0.1:8080; `token` defaults to TIDEMILL_TOKEN. What is not answered is
    tried again for `retry_seconds`: selects always, appends under a key, so that each is done once.

    Raises:
        BadInput: the URL or the token is malformed. From each call: the gateway refuses the token, or it is closed.
        StoreUnavailable: from each call: the gateway or its store did not answer in that time. Nothing was appended; an
            option or a pause may have been set all the same.
        OutcomeUnknown: from appends and edits: it was done once or not at all.
    """

    def __init__(
        self, url: str, token: str | None = None, *, retry_seconds: float = RETRY_SECONDS, transport: Any = None
    ) -> None:
        given = os.environ.get("TIDEMILL_TOKEN") if token is None else token
        self._connection = Connection(url, _checked(given), retry_seconds, transport)

    def __repr__(self) -> str:
        return f"Client({self._connection.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Settle what is under way and close the connections."""
        self._connection.close()

    def depot(self, module: str, name: str) -> DepotClient:
        """A depot. Raises UnknownName where there is none."""
        return DepotClient(self._connection, module, name)

    def pstate(self, module: str, name: str) -> PStateClient:
        """A PState. Raises UnknownName where there is none, NotSelectable where it is private."""
        return PStateClient(self._connection, module, name)

    def query(self, module: str, name: str, engine: Literal["local", "spark"] | None = None) -> QueryClient:
        """A query, to run on `engine` instead of where its module says. Raises UnknownName where there is none."""
        return QueryClient(self._connection, module, name, engine)

    def cluster_depot(self, module: str, name: str) -> DepotClient:
        """As `depot`, by the name that a cluster has for it: code that takes either works with both."""
        return self.depot(module, name)

    def cluster_pstate(self, module: str, name: str) -> PStateClient:
        """As `pstate`, by the name that a cluster has for it."""
        return self.pstate(module, name)

    def cluster_query(self, module: str, name: str, engine: Literal["local", "spark"] | None = None) -> QueryClient:
        """As `query`, by the name that a cluster has for it."""
        return self.query(module, name, engine)

    def quarantine(self, module: str, topology: str) -> QuarantineClient:
        """The records that a topology left out, to look at and to decide on. Raises UnknownName."""
        return QuarantineClient(self._connection, module, topology)

    def modules(self) -> list[str]:
        """The names of the modules that the gateway serves and that the token may see."""
        found: list[str] = self._get("/modules")
        return found

    def definition(self, module: str) -> dict[str, Any]:
        """The module's stored definition; its keys: `module`, `number`, `tasks`, `threads`, `depots`, `topologies`,
        `queries`.

        Raises:
            UnknownName: there is no such module.
        """
        return self._get(_module(module))  # type: ignore[no-any-return]

    def status(self, module: str, topology: str) -> TopologyStatus:
        """How a topology stands, as `tidemill status` shows it. Raises UnknownName."""
        return TopologyStatus.from_json(self._get(_topology(module, topology)))

    def microbatch_state(self, module: str, topology: str) -> tuple[int, int]:
        """(last committed microbatch ID, the version that committed it); (0, 0) before any. Raises UnknownName."""
        found = self.status(module, topology)
        return found.microbatch_id, found.version

    def options(self, module: str) -> dict[str, Any]:
        """The options of the module and its objects. Raises UnknownName.

        `set` lists dicts of scope, object, name, value; `paused` names topologies; `managed` lists the options that a
        resource decides, as dicts of scope, object, name, by.
        """
        return self._get(f"{_module(module)}/options")  # type: ignore[no-any-return]

    def set_option(self, module: str, name: str, value: Any, **place: str) -> None:
        """Set an option on the module, or on the object that `topology=`, `depot=` or `pstate=` names.

        Raises:
            OptionError: the option, its value or its place is not possible.
            Managed: a resource decides it.
            UnknownName: there is no such module or object.
        """
        self._patch(module, {**place, "set": {_option(name): value}})

    def unset_option(self, module: str, name: str, **place: str) -> None:
        """Take a setting away, so that the default holds again. Raises as `set_option`."""
        self._patch(module, {**place, "unset": [_option(name)]})

    def wait_until_processed(self, module: str, topology: str | None = None, timeout_seconds: float = 30.0) -> None:
        """Return when all records that are appended by now are processed: a select then sees them.

        `topology`: for this one; for each of the module's if it is left out.

        Raises:
            TimeoutError: says how many records wait.
            UserCodeError: the module's code fails on each attempt.
            UnknownName: there is no such module or topology.
        """
        deadline = time.monotonic() + checked_time("timeout_seconds", timeout_seconds)
        asked: dict[str, Any] = {"topology": topology}
        while True:
            left = max(0.0, deadline - time.monotonic())
            body = packed({**asked, "timeoutMs": 1000 * left})
            found = self._connection.send(Request("POST", f"{_module(module)}/wait", body))
            if found["processed"]:
                return
            if time.monotonic() >= deadline:
                raise TimeoutError(str(found["message"]))
            asked = {"barrier": found["barrier"]}

    def pause_microbatch_topology(self, module: str, topology: str) -> None:
        """Pause a topology; returns at once. `is_pause_seen` of its status says that the microbatch under way is done.

        Raises:
            UnknownName: there is no such module or topology.
        """
        self._connection.send(Request("POST", f"{_topology(module, topology)}/pause"))

    def resume_microbatch_topology(self, module: str, topology: str) -> None:
        """Let a paused topology go on. Raises UnknownName."""
        self._connection.send(Request("POST", f"{_topology(module, topology)}/resume"))

    def _get(self, path: str) -> Any:
        return self._connection.send(Request("GET", path))

    def _patch(self, module: str, edit: dict[str, Any]) -> None:
        self._connection.send(Request("PATCH", f"{_module(module)}/options", packed(edit, "The option")))


def _checked(token: str | None) -> str | None:
    """A token without the blanks around it, which a file or a shell leaves; the error does not repeat it."""
    if token is not None and not isinstance(token, str):
        raise BadInput(f"A token is a text, not a {type(token).__name__}.")
    token = (token or "").strip()
    if not all("!" <= letter <= "~" for letter in token):
        raise BadInput("The token has a blank or a letter that no token has; it is printable ASCII without spaces.")
    return token or None


def _option(name: str) -> str:
    if not isinstance(name, str):
        raise OptionError(f"The name of an option is a text, not {name!r}.")
    return name


def _module(module: str) -> str:
    return f"/modules/{in_url('module', module)}"


def _topology(module: str, topology: str) -> str:
    return f"{_module(module)}/topologies/{in_url('topology', topology)}"
