// Tables, a page of them at a time: the worker filters, sorts and counts.
const TABLE_CHIP = { blocked: "bad", retrying: "warn", paused: "busy", running: "busy", queued: "", idle: "" };
const PAGE = 25;
const wanted = { filter: "", state: "", sort: "trouble", descending: false, offset: 0 };
const DETAIL_MS = 5000;
let asking = false, again = false, opened = null, detail = null, detailAsked = 0;

async function askTables() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    const answer = await fetch(`api/tables?${new URLSearchParams({ ...wanted, limit: PAGE })}`, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.ok) showTables(await answer.json());
  } catch {
    // The stream tells that the worker does not answer.
  }
  asking = false;
  if (again) { again = false; askTables(); }
}
function showTables(answer) {
  if (answer.offset >= answer.found && answer.offset > 0) {  // there are fewer now
    wanted.offset = Math.max(0, Math.floor((answer.found - 1) / PAGE) * PAGE);
    again = true;
    return;
  }
  const rows = answer.tables.flatMap(table => table.table === opened ? [[table], [table, "opened"]] : [[table]]);
  keep(at("tables").tBodies[0], rows, ([table, kind]) => `${kind ?? ""} ${table.table} ${table.lane}`,
    ([table, kind]) => kind ? makeDetail() : makeTableRow(table), (row, [table, kind]) => kind ? updateDetail(row) : updateTableRow(row, table));
  const narrowed = wanted.filter || wanted.state;
  say(at("tables-count"), narrowed ? `${count(answer.found)} of ${count(answer.in_all)}` : count(answer.in_all));
  say(at("shown"), answer.found ? `${count(answer.offset + 1)}–${count(answer.offset + answer.tables.length)} of ${count(answer.found)}`
    : narrowed ? "no table matches" : "no table yet: no records so far");
  at("previous").disabled = answer.offset === 0;
  at("next").disabled = answer.offset + answer.tables.length >= answer.found;
  at("by-trouble").hidden = wanted.sort === "trouble";
}
// One table opens at a time: whom it waits for, its handlers' times, its last hour.
async function openTable(name, elsewhere = false) {
  opened = opened === name && !elsewhere ? null : name;
  detail = null;
  detailAsked = 0;
  if (elsewhere) {
    at("filter").value = name;
    at("state-filter").value = "";
    want({ filter: name, state: "" });
    at("main").scrollIntoView();
  } else askTables();
  askDetail();
}
async function askDetail() {
  const name = opened;
  if (name === null || Date.now() < detailAsked + DETAIL_MS) return;
  detailAsked = Date.now();
  try {
    const answer = await fetch(`api/table?${new URLSearchParams({ table: name })}`, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok || name !== opened) return;
    detail = await answer.json();
    const row = at("tables").querySelector("tr.detail");
    if (row) updateDetail(row);
  } catch {
    // It is asked for again.
  }
}
const precise = seconds => seconds < 0.1 ? `${Number((1000 * seconds).toPrecision(2))} ms` : time(seconds);
const TABLE_CHARTS = [["Records a minute", "finished", short], ["Delay", "delay", time], ["Queued", "queued", short], ["Failures a minute", "failed", count]];
function makeDetail() {
  const charts = make("div", "small-charts", ...TABLE_CHARTS.map(([title]) => {
    const svg = draw("svg", "", { viewBox: `0 0 ${HOUR} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    svg.append(draw("path", "line"));
    return make("figure", "", make("figcaption", "quiet"), svg);
  }));
  const cell = make("td", "", make("ul", "why"), make("ul", "calls quiet"), charts);
  cell.colSpan = 8;
  return make("tr", "detail", cell);
}
function updateDetail(row) {
  const [reasons, calls, charts] = row.firstChild.children;
  keep(reasons, detail?.why ?? ["…"], (_, number) => number, () => make("li"), (item, reason) => say(item, reason));
  keep(calls, Object.entries(detail?.found?.calls ?? {}), call => call[0], () => make("li"), (item, [handler, [calls, mean, longest]]) =>
    say(item, `handler ${handler}: ${plural(calls, "call")}, ${precise(mean)} on average, at most ${precise(longest)}`));
  const points = (detail?.points ?? []).map(values => Object.fromEntries(detail.fields.map((name, number) => [name, values[number]])));
  for (let number = points.length - 1; number >= 0; number -= 1) {  // from so far to since the point before
    for (const field of ["finished", "failed"]) {
      const earlier = points[number - 1]?.[field];
      points[number][field] = known(earlier) ? Math.max(0, points[number][field] - earlier) : null;
    }
  }
  TABLE_CHARTS.forEach(([title, field, told], number) => {
    const [caption, svg] = charts.children[number].children, found = points.filter(point => known(point[field]));
    const most = Math.max(0, ...found.map(point => point[field]));
    const first = points[0]?.time ?? 0, width = Math.max(60, (points.at(-1)?.time ?? 0) - first);
    const line = found.map((point, at) => `${at ? "L" : "M"}${Math.round((point.time - first) / width * HOUR)} ${(HEIGHT - 4 - (HEIGHT - 10) * point[field] / (most || 1)).toFixed(1)}`).join("");
    say(caption, found.length ? `${title}: ${told(found.at(-1)[field])}, at most ${told(most)}` : `${title}: no figures yet`);
    mark(svg.lastChild, "d", line);
    mark(svg, "aria-label", `${title} of the last ${time(width)}, one point a minute`);
  });
}
function makeTableRow(table) {
  const open = make("button", "name", make("span"));
  open.type = "button";
  open.addEventListener("click", () => openTable(table.table));
  const name = make("th", "", open);
  name.scope = "row";
  const row = make("tr", "", name, make("td", "", make("span")));
  for (const kind of ["n wide", "n wide", "n rate", "n wide", "n wide", "n"]) row.append(make("td", kind));
  return row;
}
function updateTableRow(row, table) {
  const [name, state, lane, queued, rate, finished, failures, delay] = row.children;
  sayName(name.firstChild.firstChild, table.table);
  mark(name.firstChild, "aria-expanded", String(table.table === opened));
  if (table.error && !name.children[1]) name.append(make("p", "error"));
  if (!table.error && name.children[1]) name.children[1].remove();
  if (table.error) {
    say(name.children[1], table.error);
    mark(name.children[1], "title", table.error);
  }
  const word = table.state === "retrying" && table.attempt ? `retry ${table.attempt}` : table.state;
  say(state.firstChild, word, `chip ${table.state} ${TABLE_CHIP[table.state] ?? ""}`);
  say(lane, String(table.lane));
  say(queued, count(table.queued_records));
  say(rate, short(table.rate));
  say(finished, count(table.finished_records));
  say(failures, count(table.failed_batches));
  say(delay, time(table.delay_seconds));
}
function want(change) {
  Object.assign(wanted, { offset: 0 }, change);
  for (const head of at("tables").tHead.rows[0].cells) {
    if (head.dataset.sort === wanted.sort) mark(head, "aria-sort", wanted.descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  askTables();
}
for (const head of at("tables").tHead.rows[0].cells) {
  const button = make("button", "", head.textContent);
  button.type = "button";
  button.addEventListener("click", () => {
    const same = wanted.sort === head.dataset.sort;
    // Figures begin with the largest, names with the first.
    want({ sort: head.dataset.sort, descending: same ? !wanted.descending : head.classList.contains("n") });
  });
  head.replaceChildren(button);
}
at("filter").addEventListener("input", () => want({ filter: at("filter").value.trim() }));
at("state-filter").addEventListener("change", () => want({ state: at("state-filter").value }));
at("previous").addEventListener("click", () => want({ offset: Math.max(0, wanted.offset - PAGE) }));
at("next").addEventListener("click", () => want({ offset: wanted.offset + PAGE }));
at("by-trouble").addEventListener("click", () => want({ sort: "trouble", descending: false }));
document.addEventListener("keydown", event => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    at("filter").focus();
  }
});
