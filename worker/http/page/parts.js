// Lanes, partitions with their windows, and Spark tables.
function showLanes(now) {
  const full = now.status.lane_max_records ?? Math.max(1, ...now.lanes.map(lane => lane.queued_records));
  keep(at("lanes"), now.lanes, lane => lane.lane, lane => {
    const item = make("li", "",
    make("div", "row", make("span", "", `Lane ${lane.lane}`), make("span")), make("div", "bar", make("i")), make("div", "what quiet"));
    mark(item, "id", `lane-${lane.lane}`);
    return item;
  }, (item, lane) => {
    const [row, bar, what] = item.children, share = Math.min(1, lane.queued_records / full);
    say(row.lastChild, count(lane.queued_records));
    bar.firstChild.style.width = `${100 * share}%`;
    mark(bar.firstChild, "class", share >= 0.9 ? "warn" : "");
    say(what, lane.running_table ? `${time(lane.running_seconds)} ${named(lane.running_table)}` : "idle");
    mark(what, "title", named(lane.running_table));
    mark(item, "class", lane.waited_for ? "full" : "");
  });
  const more = now.lanes_in_all - now.lanes.length;
  say(at("lanes-count"), `${count(now.lanes_busy)} of ${count(now.lanes_in_all)} at work` + (more ? `, ${count(more)} are not shown` : ""));
}

const WIDE = 1000, TALL = 16;
function drawWindow(svg, item) {
  const from = item.first_unfinished ?? item.position ?? 0;
  const done = Math.max(0, from - (item.committed ?? from)), open = Math.max(0, (item.position ?? from) - from), unread = item.unread ?? 0;
  const parts = [];
  let place = 0, head = null;
  const add = (kind, width, opacity) => { if (width > 0) parts.push({ kind, x: place, width, opacity }); place += width; };
  if (done + open + unread === 0) add("all", WIDE, 1);
  else {
    // What was not read yet may be a million times more: it takes two fifths at most.
    const tail = done + open ? Math.min(unread / (done + open + unread), 0.4) * WIDE : WIDE;
    const scale = done + open ? (WIDE - tail) / (done + open) : 0;
    add("done", done * scale, 1);
    if (open) head = place;
    if (open && item.window.length) {
      const width = open * scale / item.window.length;
      for (const share of item.window) {
        parts.push({ kind: "open", x: place, width, opacity: 1 });
        if (share > 0) parts.push({ kind: "ahead", x: place, width, opacity: Math.max(0.25, share) });
        place += width;
      }
    } else add("open", open * scale, 1);
    add("unread", tail, 1);
  }
  if (head !== null) parts.push({ kind: item.stuck ? "headmark stuck" : "headmark", x: Math.max(0, head - 4), width: item.stuck ? 16 : 9, opacity: 1 });
  keep(svg, parts.map((part, number) => ({ ...part, number })), part => part.number, () => draw("rect", "", { y: 0, height: TALL }), (rect, part) => {
    mark(rect, "class", part.kind);
    mark(rect, "x", part.x.toFixed(1));
    mark(rect, "width", (part.width + 0.5).toFixed(1));
    mark(rect, "opacity", String(part.opacity));
  });
  const told = [`committed ${count(item.committed)}`, done ? `${count(done)} finished and to be committed` : "",
    open ? `first unfinished ${count(from)}` : "all read records are finished", item.finished_ahead ? `${count(item.finished_ahead)} finished ahead` : "",
    `read up to ${count(item.position)}`, known(item.unread) ? `${count(item.unread)} not read yet` : ""];
  mark(svg, "aria-label", told.filter(Boolean).join(", "));
}
function stateOf(item) {
  if (item.stuck) return `stuck at ${count(item.stuck.offset)} for ${time(item.stuck.seconds)}: ${item.stuck.state}`;
  if (item.standstill_seconds >= 1) return `stands still for ${time(item.standstill_seconds)}`;
  if (item.paused) return item.paused_by && item.paused_by !== "lanes" ? `paused: ${item.paused_by}` : "paused: the lanes are full";
  return "";
}
function showPartitions(now, before) {
  const elapsed = before ? now.status.uptime_seconds - before.status.uptime_seconds : 0;
  const key = item => `${item.topic} ${item.partition}`;
  const old = new Map((before?.partitions ?? []).map(item => [key(item), item.position]));
  keep(at("partitions").tBodies[0], now.partitions, key, () => {
    const name = make("th", "", make("span"), make("span", "where"));
    name.scope = "row";
    const svg = draw("svg", "", { viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", role: "img" });
    const row = make("tr", "", name, make("td", "window", svg));
    row.tabIndex = -1;
    for (const kind of ["n", "n wide", "n wide", "n wide", "n wide", "n"]) row.append(make("td", kind));
    return row;
  }, (row, item) => {
    const [name, drawn, lag, rate, committed, unfinished, ahead, delay] = row.children;
    const earlier = old.get(key(item));
    sayName(name.firstChild, `${item.topic} [${item.partition}]`);
    row.dataset.place = `${item.topic}[${item.partition}]`;
    say(name.lastChild, stateOf(item), item.stuck || item.standstill_seconds >= 1 ? "where bad" : "where quiet");
    drawWindow(drawn.firstChild, item);
    say(lag, count(item.lag));
    say(rate, elapsed > 0 && known(earlier) && known(item.position) ? short(Math.max(0, item.position - earlier) / elapsed) : "–");
    say(committed, count(item.committed));
    say(unfinished, count(item.unfinished));
    say(ahead, count(item.finished_ahead));
    say(delay, time(item.delay_seconds));
  });
  const more = now.partitions_in_all - now.partitions.length;
  say(at("partitions-count"), count(now.partitions_in_all) + (more ? `, ${count(more)} are not shown` : ""));
}

const SHOWN_APART = new Set(["handler", "type", "lane", "spark", "tables", "error"]);
function showHandlers(now) {
  const lines = new Set();
  for (const handler of now.handlers) {
    const { spark } = handler;
    if (spark) lines.add([`Spark ${spark.version ?? ""}`.trim(), spark.master, spark.ui && `UI ${spark.ui}`].filter(Boolean).join(" · "));
    const rest = Object.keys(handler).filter(key => !SHOWN_APART.has(key));
    if (rest.length) lines.add([handler.handler, ...rest.map(key => `${key} ${typeof handler[key] === "object" ? JSON.stringify(handler[key]) : handler[key]}`)].join(" · "));
  }
  keep(at("handlers"), [...lines], line => line, () => make("li"), (item, line) => say(item, line));
  at("waiting-part").hidden = !now.waiting_in_all;
  const more = now.waiting_in_all - now.waiting.length;
  say(at("waiting-count"), `${plural(now.waiting_in_all, "table")} with rows that wait` + (more ? `, ${count(more)} are not shown` : ""));
  keep(at("waiting").tBodies[0], now.waiting, table => `${table.handler} ${table.table}`, () => make("tr", "", make("td", "", make("span"), make("p", "error"))), (row, table) => {
    const behind = known(table.merged_source_time_ms) && table.waiting_rows ? Math.max(0, now.time - table.merged_source_time_ms / 1000) : null;
    sayName(row.children[0].firstChild, String(table.table ?? ""));
    say(row.children[0].lastChild, String(table.error ?? ""));
    const figures = [[count(table.waiting_rows), "n"], [bytes(table.waiting_bytes ?? 0), "n wide"], [time(table.waiting_seconds), "n"], [time(behind), "n wide"]];
    figures.forEach(([text, kind], number) => {
      if (!row.children[number + 1]) row.append(make("td", kind));
      say(row.children[number + 1], text);
    });
  });
}
