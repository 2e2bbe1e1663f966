"""The `redis` handler when its server is away, refuses, or answers too late."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
import redis
from servers.redis_node import RedisNode
from servers.server_process import PASSWORD
from servers.slow_relay import SlowRelay
from servers.spark_cluster import eventually
from structlog.testing import capture_logs

from handlers import HandlerContext, TargetUnavailable
from handlers.failures import UnfitPlace
from handlers.redis.handler import RedisHandler
from handlers.redis.target import RefusedByRedis
from handlers.testing import make_batch, opened

CONTEXT = HandlerContext(worker="w", handler="redis", folder=Path())


def test_check_logs_in(redis_server: RedisNode) -> None:
    RedisHandler(url=redis_server.url).check(CONTEXT)


def test_check_tells_what_is_wrong_and_never_the_password(redis_server: RedisNode) -> None:
    address = f"127.0.0.1:{redis_server.port}"
    faults = {
        f"redis://:{PASSWORD}-wrong@{address}/0": "refuses the user or the password: invalid",
        f"redis://{address}/0": "refuses the user or the password: HELLO",
        f"redis://:{PASSWORD}@{address}/99": "DB index is out of range",
        f"redis://:{PASSWORD}@127.0.0.1:1/0": "Connection refused",
    }
    for url, told in faults.items():
        with pytest.raises((TargetUnavailable, RefusedByRedis), match=told) as caught:
            RedisHandler(url=url).check(CONTEXT)
        assert PASSWORD not in str(caught.value)
        assert caught.value.__suppress_context__


def test_a_server_that_is_away_is_unavailable_until_it_is_back(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    url = server.new_database("away")
    with opened(RedisHandler(url=url)) as handler:
        handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
        server.kill()
        for _ in range(2):
            with pytest.raises(TargetUnavailable, match=f"127.0.0.1:{server.port}"):
                handler.handle(make_batch("shop.orders", [{"id": 2}], key="id"))
        server.start()
        handler.handle(make_batch("shop.orders", [{"id": 2}], key="id"))
    with redis.Redis.from_url(url) as client:
        assert sorted(client.keys()) == [b"shop:orders:1", b"shop:orders:2"]


def test_a_restart_between_two_batches_is_not_noticed(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    with opened(RedisHandler(url=server.url)) as handler:
        handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
        server.restart()
        handler.handle(make_batch("shop.orders", [{"id": 2}], key="id"))


def test_a_worker_starts_though_its_server_is_away(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    server.stop()
    with opened(RedisHandler(url=server.url)) as handler:
        with pytest.raises(TargetUnavailable):
            handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
        server.start()
        handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))


def test_what_the_network_delivers_too_late_never_overwrites_what_came_after(
    redis_server: RedisNode,
) -> None:
    url = redis_server.new_database("late")
    with SlowRelay(redis_server.port) as relay:
        slow_url = url.replace(f":{redis_server.port}/", f":{relay.port}/")
        with opened(RedisHandler(url=slow_url, timeout="200ms")) as handler:
            handler.handle(make_batch("shop.orders", [{"id": 1, "version": "first"}], key="id"))
            relay.hold()
            with pytest.raises(TargetUnavailable, match="Timeout"):
                handler.handle(make_batch("shop.orders", [{"id": 1, "version": "second"}], key="id"))
            handler.handle(make_batch("shop.orders", [{"id": 1, "version": "third"}], key="id"))
            relay.release()
    with redis.Redis.from_url(url) as client:
        assert client.hget("shop:orders:1", "version") == b"third"


def test_a_user_who_may_not_end_connections_is_told_so_and_goes_on(
    own_redis: Callable[[], RedisNode],
) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser(
            "shop", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], commands=["+@all", "-client|list"]
        )
    assert _logged_after_a_late_answer(server, user="shop", batches=2) == ["redis_connections_not_ended"]


def _logged_after_a_late_answer(server: RedisNode, *, user: str, batches: int) -> list[str]:
    """Handle this number of batches after one whose answer comes too late; return their log events."""
    batch = make_batch("shop.orders", [{"id": 1}], key="id")
    with SlowRelay(server.port) as relay:
        url = f"redis://{user}:{PASSWORD}@127.0.0.1:{relay.port}/0"
        with opened(RedisHandler(url=url, timeout="200ms")) as handler:
            handler.handle(batch)
            relay.hold()
            with pytest.raises(TargetUnavailable, match="Timeout"):
                handler.handle(batch)
            with capture_logs() as logged:
                for _ in range(batches):
                    handler.handle(batch)
    return [line["event"] for line in logged]


def test_a_server_that_ends_no_connections_is_written_to_after_a_late_answer(
    redis_server: RedisNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that speak Redis' protocol lack some of its commands."""

    def unknown(_: redis.Redis) -> None:
        raise redis.ResponseError("ERR Unknown subcommand or wrong number of arguments for 'LIST'")

    monkeypatch.setattr(redis.Redis, "client_list", unknown)
    assert _logged_after_a_late_answer(redis_server, user="", batches=1) == ["redis_connections_not_ended"]


def test_a_server_without_its_replicas_is_unavailable(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("min-replicas-to-write", "1")
    refuses_for_now(server, "NOREPLICAS")


def test_a_server_that_became_a_replica_is_unavailable(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", "1")
        refuses_for_now(server, "read only replica")
        client.config_set("replica-serve-stale-data", "no")
    refuses_for_now(server, "MASTER is down", value="json")  # reads the row before it writes


def test_a_server_that_is_busy_with_a_script_is_unavailable(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as client, redis.Redis.from_url(server.url) as other:
        client.config_set("busy-reply-threshold", "20")
        endless = Thread(target=runs_until_it_is_killed, args=(other,), daemon=True)
        endless.start()
        try:
            eventually(lambda: is_busy(client), "the script runs")
            refuses_for_now(server, "BUSY")
            refuses_for_now(server, "BUSY", value="json")
        finally:
            client.script_kill()
            endless.join()


def runs_until_it_is_killed(client: redis.Redis) -> None:
    with suppress(redis.ResponseError):
        client.eval("while true do end", 0)


def is_busy(client: redis.Redis) -> bool:
    try:
        client.get("any")
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


def refuses_for_now(server: RedisNode, told: str, **options: str) -> None:
    update = {"before": {"id": 1}, "after": {"id": 1}}
    batch = make_batch("shop.orders", [update], key="id", types={"id": "int", "name": "text"})
    with (
        opened(RedisHandler(url=server.url, **options)) as handler,
        pytest.raises(TargetUnavailable, match=told),
    ):
        handler.handle(batch)


def test_a_server_without_memory_is_waited_for_and_tells_no_row(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1mb")
        with opened(RedisHandler(url=server.url)) as handler:
            batch = make_batch("shop.orders", [{"id": 1, "card": "4111-1111"}], key="id")
            with pytest.raises(TargetUnavailable, match="maxmemory") as caught:
                handler.handle(batch)
            assert "4111" not in str(caught.value)
            client.config_set("maxmemory", "0")
            handler.handle(batch)
        assert client.hget("shop:orders:1", "card") == b"4111-1111"


def test_a_user_without_a_right_is_waited_for(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL SETUSER narrow on >p ~other:* +@all")
        url = f"redis://narrow:p@{server.url.rpartition('@')[2]}"
        with opened(RedisHandler(url=url)) as handler:
            batch = make_batch("shop.orders", [{"id": 1, "card": "4111-1111"}], key="id")
            with pytest.raises(UnfitPlace, match="no permissions") as caught:
                handler.handle(batch)
            assert "4111" not in str(caught.value)
            handler.handle(make_batch("other.orders", [{"id": 1}], key="id"))
            client.execute_command("ACL SETUSER narrow ~shop:*")
            handler.handle(batch)
        assert client.hget("shop:orders:1", "card") == b"4111-1111"


def test_a_batch_waits_for_as_many_replicas_as_it_is_to_have(own_redis: Callable[[], RedisNode]) -> None:
    """A fail-over loses what only the primary had."""
    primary, replica = own_redis(), own_redis()
    rows = make_batch("shop.orders", [{"id": 1}], key="id")
    with opened(RedisHandler(url=primary.url, wait_replicas=1, timeout="2s")) as handler:
        with pytest.raises(TargetUnavailable, match=r"0 replicas .* wait_replicas needs 1"):
            handler.handle(rows)
        with redis.Redis.from_url(replica.url) as client:
            client.config_set("masterauth", PASSWORD)
            client.replicaof("127.0.0.1", str(primary.port))
            eventually(lambda: client.info("replication")["master_link_status"] == "up", "a replica")
            handler.handle(rows)
            assert client.hgetall("shop:orders:1") == {b"id": b"1"}


def test_replicas_that_may_not_be_waited_for_are_told(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser(
            "writer", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-wait"]
        )
    url = f"redis://writer:secret@127.0.0.1:{server.port}/0"
    with (
        opened(RedisHandler(url=url, wait_replicas=1)) as handler,
        pytest.raises((TargetUnavailable, RefusedByRedis), match=r"(?i)\bwait\b"),
    ):
        handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
