"use strict";
const POLL_MS = 2000, FIRST_ROWS = 20, LATE_SECONDS = 60;
const TABLE_CHIP = { blocked: "bad", retrying: "warn", running: "busy", queued: "", idle: "" };
const STATE_CHIP = { running: "good", starting: "busy", draining: "warn", halted: "bad", stopped: "" };
const at = id => document.getElementById(id);
const by = value => item => item[value] ?? -1;
let now = null, before = null, asOf = null, showAll = false, lost = null;

// Names and errors come from other systems: they are only ever set as text.
function make(tag, text, kind, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== null && text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}
function count(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`;
}
function sum(items, field) { return items.reduce((total, item) => total + (item[field] ?? 0), 0); }
function plural(n, word) { return `${count(n)} ${word}${n === 1 ? "" : "s"}`; }

// Growth per second of one figure since the poll before; null when there is none to compare with.
function rates(list, key, field) {
  const elapsed = before ? now.uptime_seconds - before.uptime_seconds : 0;
  if (elapsed <= 0) return () => null;
  const old = new Map();
  for (const item of before[list]) old.set(key(item), (old.get(key(item)) ?? 0) + (item[field] ?? 0));
  return item => old.has(key(item)) ? Math.max(0, (item[field] ?? 0) - old.get(key(item))) / elapsed : null;
}
function order(items, ...keys) {
  return [...items].sort((a, b) => {
    for (const key of keys) {
      const x = key(a), y = key(b);
      if (x !== y) return x < y ? -1 : 1;
    }
    return 0;
  });
}
// Trouble first; the others keep their places from poll to poll, the busiest on top.
function trouble(table) {
  if (table.state === "blocked") return 0;
  if (table.state === "retrying") return 1;
  return (table.delay_seconds ?? 0) >= LATE_SECONDS ? 2 : 3;
}
function figure(title, value, note, kind) {
  return make("div", null, "", make("dt", title), make("dd", value, kind, make("small", note)));
}
function showFigures() {
  const finished = status => status.finished_records ?? sum(status.tables, "finished_records");
  const rate = now.tables.length && before && now.uptime_seconds > before.uptime_seconds
    ? Math.max(0, finished(now) - finished(before)) / (now.uptime_seconds - before.uptime_seconds) : null;
  const lag = !now.partitions.length || now.partitions.some(item => item.lag === null) ? null : sum(now.partitions, "lag");
  const paused = now.partitions.filter(item => item.paused).length;
  const blocked = now.tables.filter(table => table.state === "blocked").length;
  const retrying = now.tables.filter(table => table.state === "retrying").length;
  const queuedBytes = sum(now.lanes, "queued_bytes");
  const delay = now.partitions.reduce((most, item) => Math.max(most, item.delay_seconds ?? 0), 0);
  const last = now.checkpoint.last_success;
  at("figures").replaceChildren(
    figure("Lag", count(lag), delay ? `oldest change ${time(delay)} ago` : "records"),
    figure("Rate", count(rate), "records/s finished"),
    figure("In the lanes", count(sum(now.lanes, "queued_records")),
      now.max_bytes ? `${bytes(queuedBytes)} of ${bytes(now.max_bytes)}` : bytes(queuedBytes)),
    figure("Blocked tables", count(blocked), retrying ? `${count(retrying)} retrying` : `of ${count(now.tables.length + (now.tables_omitted ?? 0))}`,
      blocked ? "bad" : ""),
    figure("Paused partitions", count(paused), `of ${count(now.partitions.length)}`, paused ? "warn" : ""),
    figure("Last checkpoint", last ? `${time(Math.max(0, Math.round((asOf - new Date(last)) / 1000)))} ago` : "none",
      last ? new Date(last).toLocaleTimeString() : "since the start", now.checkpoint.last_error ? "bad" : ""));
}
function showTables() {
  const wanted = at("filter").value.trim().toLowerCase();
  const found = now.tables.filter(table => table.table.toLowerCase().includes(wanted));
  const sorted = order(found, trouble, table => trouble(table) < 3 ? -by("delay_seconds")(table) : 0,
    table => -table.finished_records, by("table"));
  const rate = rates("tables", table => `${table.table} ${table.lane}`, "finished_records");
  const rows = [];
  for (const table of showAll ? sorted : sorted.slice(0, FIRST_ROWS)) {
    const state = table.state === "retrying" && table.attempt ? `retry ${table.attempt}` : table.state;
    const row = make("tr", null, table.error ? "has-error" : "",
      make("td", table.table), make("td", null, "", make("span", state, `chip ${TABLE_CHIP[table.state] ?? ""}`)),
      make("td", table.lane, "n wide"), make("td", count(table.queued_records), "n"),
      make("td", count(rate(table)), "n"), make("td", count(table.finished_records), "n wide"),
      make("td", count(table.failed_batches), "n wide"), make("td", time(table.delay_seconds), "n"));
    rows.push(row);
    if (table.error) {
      const cell = make("td", table.error, "error");
      cell.colSpan = 8;
      rows.push(make("tr", null, "", cell));
    }
  }
  at("tables").tBodies[0].replaceChildren(...rows);
  at("tables-count").textContent = (wanted ? `${count(found.length)} of ${count(now.tables.length)}` : count(found.length))
    + (now.tables_omitted ? `, ${count(now.tables_omitted)} more are not shown` : "");
  at("more").hidden = showAll || sorted.length <= FIRST_ROWS;
  at("more").textContent = `Show ${count(sorted.length - FIRST_ROWS)} more`;
}
function showLanes() {
  const full = now.lane_max_records ?? Math.max(1, ...now.lanes.map(by("queued_records")));
  const items = order(now.lanes, lane => lane.queued_records < 0.9 * full, by("lane")).map(lane => {
    const share = Math.min(1, lane.queued_records / full);
    const fill = make("i", null, share >= 0.9 ? "warn" : "");
    fill.style.width = `${100 * share}%`;
    const what = make("div", lane.running_table
      ? `${lane.running_table} · ${time(lane.running_seconds)}` : "idle", "what quiet");
    what.title = lane.running_table ?? "";
    return make("li", null, "", make("div", null, "row", make("span", `Lane ${lane.lane}`), make("span", count(lane.queued_records))),
      make("div", null, "bar", fill), what);
  });
  at("lanes").replaceChildren(...items);
  const running = now.lanes.filter(lane => lane.running_table).length;
  at("lanes-count").textContent = `${count(running)} of ${count(now.lanes.length)} at work`;
}
function showPartitions() {
  const key = item => `${item.topic} ${item.partition}`;
  const rate = rates("partitions", key, "position");
  const rows = order(now.partitions, item => !item.paused, item => -by("lag")(item), by("topic"), by("partition"))
    .map(item => make("tr", null, "",
      make("td", `${item.topic} [${item.partition}] `, "", ...(item.paused
        ? [make("span", ["lanes", null, undefined].includes(item.paused_by) ? "paused" : `paused: ${item.paused_by}`, "chip warn")] : [])),
      make("td", count(item.lag), "n"), make("td", count(rate(item)), "n wide"), make("td", count(item.position), "n wide"),
      make("td", count(item.committed), "n"), make("td", count(item.unfinished), "n"),
      make("td", count(item.finished_ahead), "n wide"), make("td", time(item.delay_seconds), "n")));
  at("partitions").tBodies[0].replaceChildren(...rows);
  at("partitions-count").textContent = rows.length ? count(rows.length) : "none assigned";
}
// Handlers of one worker share its Spark.
function showHandlers() {
  const lines = new Map();
  const tables = [];
  for (const handler of now.handlers ?? []) {
    const { handler: name, type, lane, spark, tables: own, error, ...rest } = handler;
    if (spark) {
      const line = make("li", `Spark ${spark.version ?? ""} · ${spark.master} `);
      if (/^https?:/.test(spark.ui ?? "")) {
        const link = make("a", spark.ui);
        link.href = spark.ui;
        link.rel = "noreferrer";
        line.append("· ", link);
      }
      lines.set(`spark ${spark.master}`, line);
    }
    const told = Object.entries(rest).map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`);
    if (told.length) lines.set(`${name} ${lane ?? ""}`, make("li", `${name} · ${told.join(" · ")}`));
    for (const table of own ?? []) tables.push(table);
  }
  at("handlers").replaceChildren(...lines.values());
  const sorted = order(tables, table => !table.error, table => -by("waiting_seconds")(table), by("table"));
  const rows = [];
  for (const table of sorted.slice(0, FIRST_ROWS)) {
    const behind = table.waiting_rows && table.merged_source_time_ms
      ? Math.max(0, (asOf - table.merged_source_time_ms) / 1000) : null;
    rows.push(make("tr", null, table.error ? "has-error" : "", make("td", table.table),
      make("td", count(table.waiting_rows), "n"), make("td", bytes(table.waiting_bytes ?? 0), "n"),
      make("td", time(table.waiting_seconds), "n"), make("td", time(behind), "n")));
    if (table.error) {
      const cell = make("td", table.error, "error");
      cell.colSpan = 5;
      rows.push(make("tr", null, "", cell));
    }
  }
  at("waiting").tBodies[0].replaceChildren(...rows);
  at("waiting-section").hidden = !tables.length;
  at("waiting-count").textContent = `${count(sum(tables, "waiting_rows"))} rows wait to be merged`
    + (sorted.length > FIRST_ROWS ? `, ${FIRST_ROWS} of ${count(sorted.length)} tables shown` : "");
}
function showHead() {
  document.title = `${now.name} · ${now.state}`;
  at("name").textContent = now.name;
  at("state").textContent = now.state;
  at("state").className = `chip ${STATE_CHIP[now.state] ?? ""}`;
  at("about").textContent = `binlane ${now.version} · up ${time(now.uptime_seconds)}`;
  at("as-of").textContent = `As of ${asOf.toLocaleTimeString()}, renewed every ${POLL_MS / 1000} s`;
}
// Partitions whose first unfinished record stays the first, each with the stack of the handler that has it.
function stuck() {
  return order((now?.partitions ?? []).filter(item => item.stuck), item => -item.stuck.seconds).map(item => {
    const { offset, seconds, behind, table, lane, state, error, held_by, handler, handler_seconds, stack } = item.stuck;
    const parts = [`${item.topic}[${item.partition}] stuck at offset ${offset}`
      + (table === null ? "" : ` of ${table} (lane ${lane})`) + ` for ${time(seconds)}`, state];
    if (handler) parts.push(`handler ${handler} for ${time(handler_seconds)}`);
    if (held_by) parts.push(`waits for ${held_by}`);
    parts.push(`${count(behind)} records since` + (item.paused_by === "max_ahead" ? ", so many that it is not read (max_ahead)" : ""));
    const alarm = make("div", parts.join(", ") + (error ? `: ${error}` : ""), "alarm");
    if (stack) alarm.append(make("pre", stack.trimEnd()));
    return alarm;
  });
}
function showAlarms() {
  const alarms = [];
  if (lost) alarms.push(`No answer from the worker (${lost}). What follows is old.`);
  if (now?.error) alarms.push(now.error);
  if (now?.kafka?.unconfirmed_seconds >= 1) alarms.push("No batch begins: for " + time(now.kafka.unconfirmed_seconds)
    + " the group's coordinator has taken no commit of this worker, so its partitions may be another's.");
  if (now?.checkpoint.last_error) alarms.push(`Checkpoint: ${now.checkpoint.last_error}`);
  for (const handler of now?.handlers ?? []) if (handler.error) alarms.push(`Handler ${handler.handler}: ${handler.error}`);
  at("alarms").replaceChildren(...alarms.map(text => make("p", text, "alarm")), ...stuck());
  document.body.classList.toggle("stale", lost !== null);
}
function show() {
  if (now) { showHead(); showFigures(); showTables(); showHandlers(); showLanes(); showPartitions(); }
  showAlarms();
}
async function poll() {
  if (!document.hidden) {
    try {
      const answer = await fetch("api/status", { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      const status = await answer.json();
      before = now;
      now = status;
      asOf = new Date(answer.headers.get("date") ?? Date.now());  // the worker's clock, not this browser's
      lost = null;
    } catch (error) {
      lost = error.name === "TimeoutError" ? "timed out" : error.message;
    }
    show();
  }
  setTimeout(poll, POLL_MS);
}
at("filter").addEventListener("input", () => now && showTables());
at("more").addEventListener("click", () => { showAll = true; showTables(); });
poll();
