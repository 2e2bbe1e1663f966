// What comes from the worker: messages as they happen, else asked for every ten seconds.
const STATE_CHIP = { running: "good", starting: "busy", draining: "warn", halted: "bad", stopped: "" };
const FIRST_TROUBLES = 3, SILENT_SECONDS = 12, POLL_MS = 10000, STREAM_AGAIN_MS = 60000;
let now = null, before = null, heard = Date.now(), why = "", stream = null, polling = null, allTroubles = false, settings = null;

function showHead() {
  const { status } = now;
  document.title = `${now.level === "good" ? "" : "● "}${status.name} · binlane`;
  say(at("name"), status.name);
  say(at("state"), status.state, `chip ${STATE_CHIP[status.state] ?? ""}`);
  say(at("about"), `binlane ${status.version} · up ${time(status.uptime_seconds)}`);
  say(at("live"), `${polling ? "every 10 s" : "live"} · ${clock(now.time)}`);
}
function showTroubles() {
  say(at("verdict"), now.headline, `verdict ${now.level}`);
  const shown = allTroubles ? now.troubles : now.troubles.slice(0, FIRST_TROUBLES);
  const met = new Map();  // durations in a sentence change: its place among those of its table stays
  keep(at("troubles"), shown, trouble => {
    const name = trouble.table ?? trouble.what.replace(/\d.*/, "");
    met.set(name, (met.get(name) ?? 0) + 1);
    return `${name} ${met.get(name)}`;
  }, () => make("li", "", make("p", "what"), make("p", "error"), make("p", "quiet"), make("div"), make("ul", "below"), make("p", "links quiet")), (item, trouble) => {
    // What the first line says of the worst is not said again.
    const first = trouble === now.troubles[0];
    const links = linksOf(trouble);
    mark(item, "class", first && !trouble.error && !trouble.commands.length && !trouble.below.length && !links.length ? "nothing" : trouble.level);
    const [what, error, advice, commands, below, places] = item.children;
    keep(below, trouble.below, (_, number) => number, () => make("li"), (line, told) => say(line, told));
    keep(places, links, link => link[0], ([, go]) => {
      const button = make(go ? "button" : "span");
      if (go) {
        button.type = "button";
        button.addEventListener("click", go);
      }
      return button;
    }, (button, [text]) => say(button, text));
    say(what, first ? "" : trouble.what);
    say(error, trouble.error ?? "");
    error.classList.toggle("more", error.scrollHeight > error.clientHeight + 2);
    say(advice, first ? "" : trouble.do);
    keep(commands, trouble.commands, command => command, command => {
      const code = make("code", "", command), copy = make("button", "", "Copy");
      copy.type = "button";
      copy.setAttribute("aria-label", `Copy: ${command}`);
      copy.addEventListener("click", () => copied(code, copy));
      return make("div", "command", code, copy);
    }, () => {});
  });
  const hidden = now.troubles.length - shown.length + now.troubles_omitted;
  at("more-troubles").hidden = !hidden || allTroubles;
  say(at("more-troubles"), `Show ${count(hidden)} more`);
}
// Where a problem leads: its table's row, its lane, its partition. Its runbook is a section of docs/runbooks.md.
function linksOf(trouble) {
  const go = find => () => find()?.scrollIntoView({ block: "center" });
  const { table, lane, partition, runbook } = trouble, links = [];
  if (table !== null) links.push([`Table ${named(table)}`, () => openTable(table, true)]);
  if (lane !== null) links.push([`Lane ${lane}`, go(() => at(`lane-${lane}`))]);
  if (partition !== null) links.push([`Partition ${named(partition)}`, go(() => [...at("partitions").tBodies[0].rows].find(row => row.dataset.place === partition))]);
  if (runbook !== null) links.push([`Runbook ${runbook} (docs/runbooks.md)`, null]);
  return links;
}
async function copied(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    say(button, "Copied");
  } catch {  // not over https: at least it is selected
    getSelection().selectAllChildren(code);
    say(button, "Selected");
  }
  setTimeout(() => say(button, "Copy"), 2000);
}
function showFacts() {
  const { status, states } = now;
  const last = status.checkpoint.last_success;
  const facts = [
    ["Tables blocked", count(states.blocked ?? 0), states.retrying ? `${count(states.retrying)} retrying` : states.paused ? `${count(states.paused)} paused` : `of ${count(now.tables)}`, states.blocked ? "bad" : ""],
    ["In the lanes", count(now.queued_records), (status.pace?.rate && now.queued_records ? `empty in ${time(now.queued_records / status.pace.rate)} · ` : "") + (status.max_bytes ? `${bytes(now.queued_bytes)} of ${bytes(status.max_bytes)}` : bytes(now.queued_bytes)), ""],
    ["Partitions paused", count(now.paused), `of ${count(now.partitions_in_all)}`, now.paused ? "warn" : ""],
    ["Last commit", last ? `${time(Math.max(0, Math.round(now.time - new Date(last) / 1000)))} ago` : "none", last ? clock(new Date(last) / 1000) : "since the start", status.checkpoint.last_error ? "bad" : ""],
    ["A drain now", time(now.drain_seconds), now.repeated ? `repeats ${short(now.repeated)} with an empty folder` : "repeats nothing", now.repeated ? "warn" : ""],
    ["Finished", short(status.finished_records), "records since the start", ""],
  ];
  keep(at("facts"), facts, fact => fact[0], fact => make("div", "", make("dt", "", fact[0]), make("dd", "", make("span"), make("small"))), (box, [, value, note, kind]) => {
    mark(box.lastChild, "class", kind);
    say(box.lastChild.firstChild, value);
    say(box.lastChild.lastChild, note);
  });
}
function showHour() {
  const current = { rate: now.rate, lag: now.lag, delay: now.delay };
  for (const chart of CHARTS) {
    say(chart.note, chart.field === "lag" && now.outlook ? now.outlook.replace(/ about| at this rate/g, "") : chart.unit);
    showChart(chart, current[chart.field] ?? hour.points.at(-1)?.[chart.field]);
  }
  showFigures();
  showStrip();
}
function take(message) {
  if (!message.status) return;  // the worker could not tell: the next one will
  before = now;
  now = message;
  heard = Date.now();
  hour.now = now.time;
  takePoints(FIELDS, now.points);
  while (hour.points.length && hour.points[0].time < hour.now - HOUR - 60) hour.points.shift();
  takeEntries(now.entries);
  showHead(); showTroubles(); showFacts(); showHour(); showLanes(now); showPartitions(now, before); showHandlers(now);
  showLost();
  askTables();
  askDetail();
}
const FIELDS = ["time", "rate", "lag", "delay", "commits", "failed_commits", "blocked"];
function takeEntries(entries) {
  const newest = Math.max(0, ...entries.map(entry => entry.version)), oldest = Math.min(...entries.map(entry => entry.version));
  if (hour.version && entries.length && oldest > hour.version + 1) askHistory();  // some are missing between
  for (const entry of entries) hour.entries.set(entry.id, entry);
  hour.version = Math.max(hour.version, newest);
  if (hour.entries.size > 400) {
    const kept = [...hour.entries.values()].sort((a, b) => b.version - a.version).slice(0, 400);
    hour.entries = new Map(kept.map(entry => [entry.id, entry]));
  }
}
async function askHistory() {
  try {
    const answer = await fetch("api/history", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) return;
    const told = await answer.json();
    hour.points = [];
    takePoints(told.fields, told.points);
    hour.entries = new Map(told.entries.map(entry => [entry.id, entry]));
    hour.version = Math.max(0, ...told.entries.map(entry => entry.version));
    if (now) showHour();
  } catch {
    // It is asked for again with the next stream.
  }
}
function showLost() {
  const silent = (Date.now() - heard) / 1000, lost = silent > SILENT_SECONDS + (polling ? 10 : 0);
  document.body.classList.toggle("stale", lost);
  at("lost").hidden = !lost;
  if (lost) say(at("lost"), `No answer from the worker for ${time(silent)}${why ? ` (${why})` : ""}. The data below is old.`);
}
function listen() {
  stop();
  askHistory();
  stream = new EventSource("api/events");
  stream.addEventListener("message", event => { why = ""; take(JSON.parse(event.data)); });
  stream.addEventListener("error", () => {
    if (stream?.readyState !== EventSource.CLOSED) return;  // the browser tries again by itself
    stop();
    polling = setInterval(poll, POLL_MS);
    setTimeout(() => { if (polling && !document.hidden) listen(); }, STREAM_AGAIN_MS);
    poll();
  });
}
function stop() {
  stream?.close();
  clearInterval(polling);
  stream = polling = null;
}
async function poll() {
  try {
    const answer = await fetch("api/live", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const message = await answer.json();
    why = "";
    if (polling) take(message);
  } catch (error) {
    why = error.name === "TimeoutError" ? "timed out" : error.message;
    showLost();
  }
}
async function askSettings() {
  if (!at("settings-open").open) return;
  try {
    const answer = await fetch("api/configuration", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    settings = await answer.json();
    showSettings();
  } catch (error) {
    say(at("settings-file"), `No answer: ${error.message}`);
  }
}
function showSettings() {
  if (!settings) return;
  const word = at("settings-filter").value.trim().toLowerCase(), given = at("only-given").checked;
  const found = settings.settings.filter(setting => (setting.given || !given) && setting.key.toLowerCase().includes(word));
  say(at("settings-file"), `${settings.file} · ${plural(found.length, "key")}; grey ones are defaults, *** is not shown`);
  keep(at("settings-table").tBodies[0], found, setting => setting.key, () => make("tr", "", make("td", "key"), make("td", "value")), (row, setting) => {
    mark(row, "class", setting.given ? "" : "default");
    say(row.children[0], setting.key);
    say(row.children[1], setting.value);
  });
}
at("charts").append(...CHARTS.map(makeChart));
at("more-troubles").addEventListener("click", () => { allTroubles = true; if (now) showTroubles(); });
at("more-events").addEventListener("click", () => { allEvents = true; showStrip(); });
at("figures").addEventListener("toggle", showFigures);
at("settings-open").addEventListener("toggle", askSettings);
at("settings-filter").addEventListener("input", showSettings);
at("only-given").addEventListener("change", showSettings);
// A browser has six connections to an address: pages that nobody sees leave theirs to others.
document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else { heard = Date.now(); listen(); } });
setInterval(showLost, 1000);
listen();
