"""`tidemill gateway`: the HTTP interface of a store's modules."""

from __future__ import annotations

import contextlib
import os
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.loader import STORE_DEFAULT, JsonOption, StoreOption, existing_store, load_module
from tidemill.cli.logs import begin_log
from tidemill.cli.output import command, log, say, show_json, wants_json
from tidemill.journal.definition_log import modules_of
from tidemill.journal.tracing import tracing
from tidemill.values.extras import needing

if TYPE_CHECKING:
    from tidemill.gateway.server import GatewayServer
    from tidemill.store.objects import ObjectStore

_MEGABYTE = 1024 * 1024


_ENTRY_HELP = "MODULE:CLASS, whose code plans are drawn from, and its queries and own partitioners need"


@command
def gateway(
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="Address to listen at. With tokens 0.0.0.0 (all), else 127.0.0.1, which no other machine reaches.",
        ),
    ] = "",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8080,
    module: Annotated[str, typer.Option("--module", help="Serve this module only.")] = "",
    entry: Annotated[str, typer.Option("--entry", help=f"{_ENTRY_HELP}; serves it only.")] = "",
    token_file: Annotated[
        str,
        typer.Option(
            "--token-file", help="Bearer tokens with their roles, one a line; also TIDEMILL_TOKEN_FILE, TIDEMILL_TOKEN."
        ),
    ] = "",
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="/metrics needs no token.")] = False,
    max_body_mb: Annotated[int, typer.Option("--max-body-mb", min=1, max=48, help="Megabytes of one body.")] = 32,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds of one request.")] = 30.0,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", help="Pages of this origin may use the API, with tokens; may be given again."),
    ] = None,
    requests_per_second: Annotated[
        float, typer.Option("--requests-per-second", min=0, help="Of each token; 0: without bound.")
    ] = 0,
    mb_per_second: Annotated[
        float, typer.Option("--mb-per-second", min=0, help="Megabytes of bodies of each token; 0: without bound.")
    ] = 0,
) -> None:
    """Serve appends, selects, status and options over HTTP; any number of replicas may serve one store."""
    wants_json(json_)
    with needing("gateway"):
        from tidemill.gateway.access import Rates
        from tidemill.gateway.modules import Modules
        from tidemill.gateway.server import GatewayServer
        from tidemill.gateway.settings import GatewaySettings
        from tidemill.gateway.tokens import tokens_from

    begin_log()
    tokens, declaration, opened = tokens_from(token_file, os.environ), _declared(entry), existing_store(store)
    settings = GatewaySettings(
        module=module or (declaration.name if declaration is not None else None),
        tokens=tokens,
        body_bytes_max=max_body_mb * _MEGABYTE,
        seconds_max=timeout,
        has_open_metrics=open_metrics,
        rates=Rates(requests_per_second, mb_per_second * _MEGABYTE),
        cors_origins=frozenset(cors_origin or ()),
    )
    modules = Modules(opened, settings.module, declaration)
    server = GatewayServer(modules, settings, host or ("127.0.0.1" if tokens is None else "0.0.0.0"), port)
    _tell(server.url, modules.only, opened, json_)
    _serve(server)


def _serve(server: GatewayServer) -> None:
    with tracing() as told:
        if told:
            say(told)
        server.run()


def _tell(url: str, only: str | None, store: ObjectStore, is_json: bool) -> None:
    if is_json:
        show_json({"url": url, "module": only})
        return
    if only and only not in modules_of(store):
        log(f"There is no module {only} in {store.url} yet; it is served as soon as it is there.")
    served = only or "all modules"
    log(f"Serving {served} of {store.url} at {url}, with a page for people; OpenAPI at {url}/docs.")


@command
def ui(
    store: StoreOption = STORE_DEFAULT,
    json_: JsonOption = False,
    entry: Annotated[str, typer.Option("--entry", help=f"{_ENTRY_HELP}; all other modules are shown, too.")] = "",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Show a store's modules on a page in the browser of this machine."""
    wants_json(json_)
    begin_log()
    declaration, opened = _declared(entry), existing_store(store)
    server = _on_loopback(port, {}, opened, declaration=declaration)
    if json_:
        show_json({"url": f"{server.url}/"})
    else:
        say(f"The modules of {opened.url} are shown at {server.url}/ until Ctrl-C.")
    if browser:
        # The port takes requests already; they are answered as soon as the server below runs.
        threading.Thread(target=webbrowser.open, args=(f"{server.url}/",), daemon=True).start()
    server.run()


@contextlib.contextmanager
def serving_beside(running: Any, port: int, is_json: bool) -> Iterator[None]:
    """A gateway on loopback in the process of a runner, which sees at once what is appended; none on port 0."""
    if not port:
        yield
        return
    server = _on_loopback(port, os.environ, running.store, declaration=running.declaration, hub=running.hub)
    server.start()
    try:
        if not is_json:
            log(
                f"Serving {running.definition.module} at {server.url}/, which shows all of its store in a browser, too."
            )
        yield
    finally:
        server.stop()


def _on_loopback(port: int, environment: Mapping[str, str], store: ObjectStore, **of_modules: Any) -> GatewayServer:
    """A gateway for this machine, with the tokens that the environment names; its lines of audit go to stderr."""
    with needing("gateway"):
        from tidemill.gateway.modules import Modules
        from tidemill.gateway.server import GatewayServer
        from tidemill.gateway.settings import GatewaySettings
        from tidemill.gateway.tokens import tokens_from

    settings = GatewaySettings(tokens=tokens_from("", environment))
    return GatewayServer(Modules(store, **of_modules), settings, "127.0.0.1", port)


def _declared(entry: str) -> Any:
    if not entry:
        return None
    from tidemill.api.declaration import record_module
    from tidemill.plan.check.module import checked

    return checked(record_module(load_module(entry)))
