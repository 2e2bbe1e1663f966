"""The status page in a real browser."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from example_worker import PagedWorker
from integration.process import eventually
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.http.stream import Feed
from worker.observing.metrics import Metrics

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]

PATIENCE_MS = 20_000
ROWS = "#tables tbody tr"
NODES = 2_500
"""Elements of the page, however many tables there are."""


@pytest.fixture
def worker() -> PagedWorker:
    return PagedWorker()


def serve(stack: contextlib.ExitStack, app: Starlette) -> str:
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    stack.callback(server.stop)
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def url(worker: PagedWorker) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        yield serve(
            stack,
            build_app(worker.status, lambda: None, lambda: None, Metrics(), sources=worker.sources),
        )


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[Open]:
    """`open_page()` opens the page and waits for its tables. At the end nothing went wrong in it, and it
    asked nobody but the worker."""
    with contextlib.ExitStack() as stack:
        faults: list[str] = []

        def open_page(
            at: str = url, *, prepare: Callable[[Page], Any] = lambda page: None, **options: Any
        ) -> Page:
            context = stack.enter_context(
                browser.new_context(
                    **{
                        "locale": "en-GB",
                        "viewport": {"width": 1200, "height": 800},
                        "reduced_motion": "reduce",
                        **options,
                    }
                )
            )
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on(
                "console", lambda said: faults.append(said.text) if "Content Security" in said.text else None
            )
            page.on(
                "request",
                lambda request: None if request.url.startswith((at, "data:")) else faults.append(request.url),
            )
            prepare(page)
            page.goto(at if at.endswith("/") else f"{at}/")
            page.wait_for_selector(ROWS)
            return page

        yield open_page
        assert faults == []


def test_the_page_goes_with_the_worker_and_keeps_what_somebody_is_about_to_press(
    open_page: Open, worker: PagedWorker
) -> None:
    page = open_page()
    expect(page.locator("#verdict")).to_contain_text("shop_00.payments is blocked at cdc.shop[3] offset 4711")
    page.evaluate("window.kept = document.querySelector('#charts svg')")
    copy = page.get_by_role("button", name="--skip")
    copy.focus()
    worker.history.look()
    worker.timeline.note("warning", {"event": "ddl_refused", "table": "shop_00.orders", "sql": "DROP x"})
    before = page.locator("#live").inner_text()
    expect(page.locator("#live")).not_to_have_text(before, timeout=PATIENCE_MS)
    expect(page.locator("#events")).to_contain_text("ddl refused")
    expect(page.locator("#tables tbody tr").nth(2).locator("td.rate")).not_to_have_text("–")
    expect(copy).to_be_focused()
    worker.healed = True
    expect(page.locator("#verdict")).to_have_class("verdict good", timeout=PATIENCE_MS)
    expect(page.locator("#verdict")).to_contain_text("All well: 48 tables")
    expect(page.locator("#troubles li")).to_have_count(0)
    assert page.evaluate("window.kept.isConnected")  # it was never loaded anew


def test_a_blocked_table_tells_its_error_and_commands_to_copy(open_page: Open) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    trouble = page.locator("#troubles > li").first
    expect(trouble.locator(".error")).to_contain_text("10 attempts used up, on_failure: halt <b>not bold</b>")
    command = (
        "binlane unblock /etc/binlane/shop.yaml --table shop_00.payments "
        "--topic cdc.shop --partition 3 --offset 4711 --skip"
    )
    assert trouble.locator("code").all_inner_texts() == [command.replace("--skip", "--dead-letter"), command]
    page.get_by_role("button", name=f"Copy: {command}").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_five_thousand_tables_are_a_page_of_rows_and_all_are_found(
    open_page: Open, worker: PagedWorker
) -> None:
    worker.shards = 625
    page = open_page()
    expect(page.locator(ROWS)).to_have_count(25)
    expect(page.locator("#shown")).to_have_text("1–25 of 5,000")
    assert page.evaluate("document.getElementsByTagName('*').length") < NODES
    page.locator("#filter").fill("shop_617.cart")
    expect(page.locator(f"{ROWS} th span")).to_have_text(["shop_617.carts"])
    expect(page.locator("#tables-count")).to_have_text("1 of 5,000")
    page.locator("#filter").fill("")
    page.locator("#state-filter").select_option("blocked")
    expect(page.locator(f"{ROWS} th span")).to_have_text(["shop_00.payments"])
    page.locator("#state-filter").select_option("")
    page.get_by_role("button", name="Table", exact=True).click()
    expect(page.locator(f"{ROWS} th span").first).to_have_text("shop_00.carts")
    for _ in range(3):
        page.get_by_role("button", name="Next").click()
    expect(page.locator("#shown")).to_have_text("76–100 of 5,000")
    assert page.evaluate("document.getElementsByTagName('*').length") < NODES


def test_all_can_be_done_with_the_keyboard(open_page: Open) -> None:
    page = open_page()
    press = page.keyboard.press
    press("Tab")
    expect(page.get_by_role("link", name="To the tables")).to_be_focused()
    press("Enter")
    press("Tab")
    expect(page.locator("#state-filter")).to_be_focused()
    press("Tab")
    expect(page.locator("#filter")).to_be_focused()
    for _ in range(3):
        press("Tab")
    head = page.locator("#tables th[data-sort=lane]")
    expect(head.get_by_role("button")).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(page.locator(f"{ROWS} td:nth-child(3)").first).to_have_text("15")
    press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.keyboard.type("payments")
    expect(page.locator(ROWS)).to_have_count(6)
    page.locator("#charts svg").first.focus()
    press("ArrowLeft")
    expect(page.locator(".reading").first).to_contain_text("/s")
    page.locator("#settings-open summary").focus()
    press("Enter")
    expect(page.locator("#settings-table tbody tr")).to_have_count(3)


def test_a_screen_reader_is_told_what_is_drawn(open_page: Open) -> None:
    page = open_page()
    chart = page.get_by_role("img", name="Throughput, records/s, over the last 60 min: now")
    expect(chart).to_have_count(1)
    window = (
        "committed 20,000, 500 finished and to be committed, first unfinished 20,500, "
        "2,000 finished ahead, read up to 25,000, 7,000 not read yet"
    )
    expect(page.get_by_role("img", name=window, exact=True)).to_have_count(1)
    for table in page.locator("table").all():
        assert table.locator("caption").count() == 1
        assert table.locator("thead th:not([scope=col])").count() == 0
    assert page.locator("button:not([type=button])").count() == 0
    unnamed = "e => e.filter(each => !each.labels.length && !each.ariaLabel).map(each => each.id)"
    assert page.locator("input, select").evaluate_all(unnamed) == []
    expect(page.locator("#verdict")).to_have_attribute("role", "status")
    page.locator("#figures summary").click()
    expect(page.locator("#figures tbody tr").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_light_and_dark(open_page: Open, scheme: str) -> None:
    page = open_page(color_scheme=scheme)
    page.locator("#settings-open summary").click()
    page.wait_for_selector("#settings-table tbody tr")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) > 384) == (scheme == "light")
    found = page.evaluate(_CONTRAST)
    assert len(found) > 50
    assert [each for each in found if each[0] < 4.5] == []


def test_a_phone_shows_it_without_scrolling_sideways(open_page: Open, worker: PagedWorker) -> None:
    worker.names["shop_00.orders"] = (
        "a_database_with_a_long_name." + "and_a_table_with_one_that_is_longer" * 4
    )
    page = open_page(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    page.locator("#settings-open summary").click()
    page.wait_for_selector("#settings-table tbody tr")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    wide = "e => e.filter(each => each.getBoundingClientRect().right > 360.5).map(each => each.outerHTML)"
    assert page.locator("main *:not(.sr), #troubles *, header *:not(.skip)").evaluate_all(wide) == []
    expect(page.locator("#tables")).to_contain_text("a_database_with_a_long_name")


def test_names_and_errors_of_others_are_text(open_page: Open, worker: PagedWorker) -> None:
    evil = "<img src=x onerror=\"window.taken='yes'\"><script>window.taken='yes'</script>"
    worker.names["shop_00.payments"] = f"shop.{evil}"
    worker.error, worker.topic = evil, evil
    worker.timeline.note("error", {"event": f"ddl_{evil}", "table": evil})
    page = open_page()
    expect(page.locator("#events")).to_contain_text("onerror")
    for place in ("#verdict", "#troubles", "#tables", "#partitions", "#events", "#lanes"):
        expect(page.locator(place)).to_contain_text(evil)
    assert page.locator("img, main script").count() == 0
    assert page.evaluate("window.taken") is None
    assert "'shop.<img src=x onerror=" in page.locator("code").first.inner_text()  # one word of a shell


def test_no_name_turns_the_writing_around(open_page: Open, worker: PagedWorker) -> None:
    """`shop.` and a right-to-left override before `gnp.exe` looks like `shop.exe.png`."""
    turned = "shop.\u202egnp.exe\u200b\x1b"
    worker.names["shop_00.payments"] = turned
    worker.error, worker.topic = turned, turned
    page = open_page()
    for place in ("#troubles", "#tables", "#partitions", "#lanes"):
        expect(page.locator(place)).to_contain_text("shop.\\u202egnp.exe\\u200b\\u001b")
    assert not set("\u202e\u200b\x1b") & set(page.locator("body").inner_text())


def test_no_name_looks_like_another_because_a_part_of_it_shows_nothing(
    open_page: Open, worker: PagedWorker
) -> None:
    """Fillers and selectors of variants count as letters, and a browser draws two spaces as one."""
    worker.names["shop_00.payments"] = "shop.pay\u3164\ufe0f\u2800  me "
    page = open_page()
    for place in ("#tables", "#lanes"):
        expect(page.locator(place)).to_contain_text(r"shop.pay\u3164\ufe0f\u2800 \u0020me\u0020")


def test_the_charts_go_on_after_the_workers_clock_was_set_back(open_page: Open, worker: PagedWorker) -> None:
    page = open_page()
    eventually(lambda: page.evaluate("hour.points.length") > 100)
    before = page.evaluate("hour.points.at(-1).time")
    worker.set_back = 1_800.0
    for _ in range(3):
        worker.seconds += 5
        worker.history.look()
    eventually(lambda: page.evaluate("hour.points.at(-1).time") < before - 1_700, within=10)
    times = page.evaluate("hour.points.map(point => point.time)")
    assert times == sorted(set(times))


def test_a_chart_begins_with_its_worker_and_shows_no_most_below_its_present(open_page: Open) -> None:
    page = open_page()
    eventually(lambda: page.evaluate("hour.points.length") > 100)
    page.evaluate("hour.points.splice(0, hour.points.length - 60); showChart(CHARTS[2], 1e6)")
    minutes = round(page.evaluate("span()") / 60)
    assert minutes < 10
    delay = page.locator(".chart").nth(2)
    assert delay.locator(".axis span").first.inner_text() == f"{minutes} min ago"
    assert delay.locator(".line").get_attribute("d").startswith("M0 ")  # type: ignore[union-attr]
    assert delay.locator(".top").inner_text() == f"most {delay.locator('b').inner_text()}"


def test_the_cause_is_the_first_line_and_its_victims_are_below_it(
    open_page: Open, worker: PagedWorker
) -> None:
    worker.cause = True
    page = open_page()
    verdict = page.locator("#verdict")
    expect(verdict).to_have_class("verdict bad")
    expect(verdict).to_contain_text(
        "Nothing is read because lane 3 is full of shop_01.stock (9,964 of 10,000 records)"
    )
    expect(verdict).to_contain_text("because handler mirror: connection to db.internal:5432 refused")
    first = page.locator("#troubles > li").first
    expect(first.locator(".below li").last).to_contain_text("never caught up at this rate")
    expect(page.locator(".chart figcaption .quiet").nth(1)).to_have_text("never caught up")
    expect(page.locator("#facts")).to_contain_text("repeats 48 k with an empty folder")
    expect(page.locator("#lane-3")).to_have_class("full")


def test_a_problem_leads_to_its_row_lane_partition_and_runbook(open_page: Open, worker: PagedWorker) -> None:
    worker.shards = 100  # the row is on another page of tables
    page = open_page(viewport={"width": 1200, "height": 500})
    links = page.locator("#troubles > li").first.locator(".links")
    expect(links).to_contain_text("Runbook BinlaneTableBlocked")
    inside = "e => { const b = e.getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; }"
    for name, where in (
        ("Lane 6", "#lane-6"),
        ("Partition cdc.shop[3]", "#partitions tr[data-place='cdc.shop[3]']"),
    ):
        page.evaluate("scrollTo(0, 0)")
        links.get_by_role("button", name=name).click()
        assert page.locator(where).evaluate(inside)
    links.get_by_role("button", name="Table shop_00.payments").click()
    expect(page.locator(f"{ROWS} th span")).to_have_text(["shop_00.payments"])
    expect(page.locator("#tables .detail .why")).to_contain_text("it is blocked, because handler spark")


def test_a_table_opens_to_its_last_hour_its_handlers_and_what_it_waits_for(
    open_page: Open, worker: PagedWorker
) -> None:
    worker.cause = True
    page = open_page()
    name = page.get_by_role("button", name="shop_01.stock", exact=True)
    name.click()
    expect(name).to_have_attribute("aria-expanded", "true")
    detail = page.locator("#tables .detail")
    expect(detail.locator(".why li").first).to_contain_text("it is retried since ")
    expect(detail.locator(".why")).to_contain_text("was 8.4 s old when it was fetched, 5 min ago")
    expect(detail.locator(".calls")).to_have_text("handler mirror: 57 calls, 31 ms on average, at most 2.5 s")
    drawn = detail.locator("svg path.line").evaluate_all(
        "e => e.map(each => each.getAttribute('d').split('L').length)"
    )
    assert len(drawn) == 4
    assert min(drawn) > 50, "an hour, one point a minute"
    name.click()
    expect(detail).to_have_count(0)


def test_on_a_phone_the_verdict_is_on_the_first_screen(open_page: Open, worker: PagedWorker) -> None:
    worker.cause = True
    page = open_page(viewport={"width": 360, "height": 640}, is_mobile=True, has_touch=True)
    box = page.locator("#verdict").bounding_box()
    assert box is not None
    assert box["y"] < 110
    assert box["y"] + box["height"] < 480
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("button", name="shop_01.stock", exact=True).click()
    expect(page.locator("#tables .detail .why li").first).to_contain_text("it is retried since ")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_long_name_takes_two_lines_and_one_with_a_tab_is_not_its_neighbour(
    open_page: Open, worker: PagedWorker
) -> None:
    worker.names = {"shop_00.payments": "shop." + "x" * 500, "shop_01.stock": "shop.a\tb\u00a0c"}
    page = open_page()
    name = page.locator(f"{ROWS} th .name span").first
    expect(name).to_have_attribute("title", "shop." + "x" * 500)
    assert name.evaluate("e => e.getBoundingClientRect().height") < 50
    expect(page.locator("#tables")).to_contain_text("shop.a\\u0009b\\u00a0c")
    height = page.locator("#verdict").evaluate("e => e.getBoundingClientRect().height")
    assert height < 100


def test_the_page_works_behind_a_prefix_of_a_proxy(url: str, open_page: Open) -> None:
    strays: list[str] = []

    async def forward(request: Request) -> Response:
        client = httpx.AsyncClient(trust_env=False, timeout=None)
        path = f"{url}/{request.path_params['path']}"
        asked = client.build_request(request.method, path, params=request.query_params)
        answer = await client.send(asked, stream=True)
        kept = {k: v for k, v in answer.headers.items() if k in ("content-type", "content-security-policy")}
        return StreamingResponse(answer.aiter_raw(), answer.status_code, kept)

    async def stray(request: Request) -> Response:
        strays.append(request.url.path)
        return PlainTextResponse("no such tool", 404)

    routes = [Route("/tools/shop/{path:path}", forward), Route("/{path:path}", stray)]
    with contextlib.ExitStack() as stack:
        page = open_page(f"{serve(stack, Starlette(routes=routes))}/tools/shop/")
        before = page.locator("#live").inner_text()
        assert before.startswith("live")
        expect(page.locator("#live")).not_to_have_text(before, timeout=PATIENCE_MS)
        links = page.locator("a").evaluate_all("links => links.map(link => link.href)")
        assert all(link.startswith(page.url) for link in links)
        assert f"{page.url}api/status" in links
        page.goto("about:blank")
    assert strays == []


def test_a_page_that_gets_no_stream_asks_by_itself(
    open_page: Open, monkeypatch: pytest.MonkeyPatch, worker: PagedWorker
) -> None:
    monkeypatch.setattr("worker.http.app.Feed", functools.partial(Feed, most=0))
    with contextlib.ExitStack() as stack:
        app = build_app(worker.status, lambda: None, lambda: None, Metrics(), sources=worker.sources)
        page = open_page(serve(stack, app), prepare=lambda page: page.clock.install())
        expect(page.locator("#live")).to_contain_text("every 10 s")
        with page.expect_request("**/api/live"):
            page.clock.fast_forward(11_000)
        page.goto("about:blank")


def test_a_worker_that_says_nothing_more_is_told(open_page: Open, worker: PagedWorker) -> None:
    page = open_page(prepare=lambda page: page.clock.install())
    expect(page.locator("#lost")).to_be_hidden()
    worker.answers.clear()
    page.wait_for_timeout(1_200)  # what was under way has come
    page.clock.fast_forward(15_000)
    expect(page.locator("#lost")).to_contain_text("No answer from the worker for ")
    worker.answers.set()
    expect(page.locator("#lost")).to_be_hidden()


_CONTRAST = """() => {
  const parse = text => {
    const [r, g, b, a = 1] = text.match(/[0-9.]+/g).map(Number);
    return { c: [r, g, b], a };
  };
  const light = rgb => {
    const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest("svg, script, .sr, .skip, option")) continue;
    if (element.matches(".plot *, :disabled")) continue;
    let under = element;
    while (under && parse(getComputedStyle(under).backgroundColor).a === 0) under = under.parentElement;
    const a = light(parse(getComputedStyle(element).color).c);
    const b = light(parse(getComputedStyle(under ?? document.body).backgroundColor).c);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, element.outerHTML.slice(0, 80)]);
  }
  return found;
}"""
