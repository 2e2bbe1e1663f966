"""A handler can ask which tables' records come to it, also after the configuration has changed."""

from __future__ import annotations

from typing import Any

from building import configuration

from handlers import Batch, Handler, HandlerContext
from worker.running.handler_set import HandlerSet

opened: dict[str, HandlerContext] = {}


class Asking(Handler):
    def __init__(self, **_: Any) -> None:
        pass

    def open(self, context: HandlerContext) -> None:
        opened[context.handler] = context

    def handle(self, batch: Batch) -> None:
        pass


def entry(name: str) -> dict[str, Any]:
    return {"type": "test_handles:Asking", "name": name}


def handled(name: str) -> list[str]:
    handles = opened[name].handles
    assert handles is not None
    return [table for table in ("shop.orders", "shop.items", "crm.salaries") if handles(table)]


def test_only_tables_whose_first_rule_names_the_handler_are_its_own() -> None:
    orders = {"match": "shop.orders", "handlers": [entry("a")]}
    shop = {"match": "shop.*", "handlers": [entry("b")]}
    handlers = HandlerSet(configuration(orders, shop))
    handlers.open()
    assert handled("a") == ["shop.orders"]
    assert handled("b") == ["shop.items"]
    changed = configuration({"match": "*", "handlers": [entry("a")]})
    handlers.adopt(handlers.plan(changed))
    assert handled("a") == ["shop.orders", "shop.items", "crm.salaries"]
    assert handled("b") == []
    handlers.close()
