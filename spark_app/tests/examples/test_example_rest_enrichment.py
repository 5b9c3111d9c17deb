"""examples/rest_enrichment: a real HTTP server is asked once a zip code, again where it fails, and never for what is
known already; no order is lost or counted twice.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from examples.rest_enrichment import module
from examples.rest_enrichment.module import RestEnrichment
from examples.rest_enrichment.service import Service
from running import Running

REGIONS = {"0150": "Oslo", "00100": "Rome", "../75 001?": "Paris"}


def order(number: str, zip_code: str, cents: int) -> dict[str, Any]:
    return {"id": number, "zip": zip_code, "cents": cents}


def test_orders_get_their_region_and_each_zip_code_is_asked_once(engine: str) -> None:
    with Service(REGIONS) as service, Running(RestEnrichment(service.address), engine) as shop:
        shop.pause("enrich")
        shop.append(
            "*orders", *[order(f"o{n}", list(REGIONS)[n % 3], 100) for n in range(30)], order("o0", "0150", 100)
        )
        shop.append("*orders", order("x", "99999", 7), {"id": "y", "zip": None, "cents": 5})
        shop.resume("enrich")
        shop.settle()
        assert service.calls == {**dict.fromkeys(REGIONS, 1), "99999": 1}
        shop.send("*orders", order("o30", "0150", 50), order("o0", "0150", 100))

        assert shop.get("$$orders", "o0") == {"zip": "0150", "cents": 100, "region": "Oslo"}
        assert shop.get("$$orders", "x", "region") == module.UNKNOWN
        assert shop.get("$$orders", "y") is None
        regions = [*REGIONS.values(), module.UNKNOWN]
        assert [shop.get("$$revenue", region) for region in regions] == [1_050, 1_000, 1_000, 7]
        assert sum(service.calls.values()) == 4


def test_a_call_is_tried_again_when_the_service_fails_or_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRY_SECONDS", 0.5)
    over = threading.Event()

    def before(code: str, call: int) -> int:
        if code == "0150" and call == 1:
            over.wait(60)  # longer than a request may take
        return 503 if code == "00100" and call < 3 else 200

    with Service(REGIONS, before) as service, Running(RestEnrichment(service.address)) as shop:
        shop.send("*orders", order("o1", "0150", 1), order("o2", "00100", 2), order("o3", "../75 001?", 3))
        over.set()

        assert service.calls == {"0150": 2, "00100": 3, "../75 001?": 1}
        assert [shop.get("$$orders", number, "region") for number in ("o1", "o2", "o3")] == ["Oslo", "Rome", "Paris"]
        assert shop.cluster.microbatch_state("RestEnrichment", "enrich")[1] == 1


def test_nothing_is_lost_or_doubled_when_the_service_is_away_for_long() -> None:
    with (
        Service(REGIONS, lambda code, call: 503 if call <= 2 * module.ATTEMPTS else 200) as service,
        Running(RestEnrichment(service.address)) as shop,
    ):
        shop.send("*orders", order("o1", "0150", 5))

        assert shop.cluster.microbatch_state("RestEnrichment", "enrich") == (1, 3)
        assert shop.get("$$revenue", "Oslo") == 5
        assert service.calls == {"0150": 2 * module.ATTEMPTS + 1}
