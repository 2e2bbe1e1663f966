// Tables, a page of them at a time: the worker filters, sorts and counts.
const TABLE_CHIP = { blocked: "bad", retrying: "warn", paused: "busy", running: "busy", queued: "", idle: "" };
const PAGE = 25;
const wanted = { filter: "", state: "", sort: "trouble", descending: false, offset: 0 };
let asking = false, again = false;

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
  keep(at("tables").tBodies[0], answer.tables, table => `${table.table} ${table.lane}`, makeTableRow, updateTableRow);
  const narrowed = wanted.filter || wanted.state;
  say(at("tables-count"), narrowed ? `${count(answer.found)} of ${count(answer.in_all)}` : count(answer.in_all));
  say(at("shown"), answer.found ? `${count(answer.offset + 1)}–${count(answer.offset + answer.tables.length)} of ${count(answer.found)}`
    : narrowed ? "no table matches" : "no table yet: no records so far");
  at("previous").disabled = answer.offset === 0;
  at("next").disabled = answer.offset + answer.tables.length >= answer.found;
  at("by-trouble").hidden = wanted.sort === "trouble";
}
function makeTableRow() {
  const name = make("th", "", make("span"));
  name.scope = "row";
  const row = make("tr", "", name, make("td", "", make("span")));
  for (const kind of ["n wide", "n wide", "n rate", "n wide", "n wide", "n"]) row.append(make("td", kind));
  return row;
}
function updateTableRow(row, table) {
  const [name, state, lane, queued, rate, finished, failures, delay] = row.children;
  say(name.firstChild, table.table);
  if (table.error && !name.children[1]) name.append(make("p", "error"));
  if (!table.error && name.children[1]) name.children[1].remove();
  if (table.error) {
    say(name.children[1], table.error);
    mark(name.children[1], "title", table.error);
  }
  const word = table.state === "retrying" && table.attempt ? `retry ${table.attempt}` : table.state;
  say(state.firstChild, word, `chip ${TABLE_CHIP[table.state] ?? ""}`);
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
