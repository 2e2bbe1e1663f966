// The last hour: three small charts, the same as a table, and what happened on a strip of time.
const HOUR = 3600, LEAST = 60, HEIGHT = 100, GAP = 16;
const CHARTS = [
  { field: "rate", title: "Throughput", unit: "records/s", told: value => `${short(value)}/s` },
  { field: "lag", title: "Lag", unit: "records behind the ends", told: short },
  { field: "delay", title: "Delay", unit: "oldest unfinished change", told: time },
];
const hour = { points: [], entries: new Map(), now: 0, version: 0 };

// An hour, or what a younger worker remembers. A drawing is an hour wide: what is shown of it is stretched.
function span() {
  const first = hour.points.length ? hour.points[0].time : hour.now;
  return Math.max(LEAST, Math.min(HOUR, hour.now - first));
}
const across = moment => HOUR + (moment - hour.now) * HOUR / span();

function takePoints(fields, rows) {
  for (const row of rows) {
    const point = Object.fromEntries(fields.map((name, number) => [name, row[number]]));
    if (point.time < hour.points.at(-1)?.time - LEAST) hour.points = [];  // the worker's clock was set back
    if (point.time > (hour.points.at(-1)?.time ?? 0)) hour.points.push(point);
  }
}
function makeChart(chart) {
  const figure = make("figure", "chart");
  const title = make("span", "", chart.title + " ");
  chart.note = make("span", "quiet", chart.unit);
  title.append(chart.note);
  const svg = draw("svg", "", { viewBox: `0 0 ${HOUR} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: "0" });
  chart.grid = [1, 2, 3].map(quarter => draw("path", "grid", { d: `M${quarter * HOUR / 4} 0V${HEIGHT}` }));
  chart.area = draw("path", "area");
  chart.line = draw("path", "line");
  chart.cursor = draw("path", "cursor");
  svg.append(...chart.grid, chart.area, chart.line, chart.cursor);
  chart.now = make("b");
  chart.top = make("span", "top quiet");
  chart.reading = make("div", "reading quiet");
  chart.reading.setAttribute("aria-live", "polite");
  chart.svg = svg;
  chart.begin = make("span");
  const axis = make("div", "axis quiet", chart.begin, chart.reading, make("span", "", "now"));
  figure.append(make("figcaption", "", title, chart.now), make("div", "plot", svg, chart.top), axis);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    read(chart, hour.now - span() * (1 - (event.clientX - box.left) / box.width));
  });
  for (const end of ["pointerleave", "blur"]) svg.addEventListener(end, () => read(chart, null));
  svg.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: 60, PageDown: -60, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !hour.points.length) return;
    event.preventDefault();
    const from = chart.at === undefined || chart.at === null ? hour.points.length - 1
      : hour.points.findIndex(point => point.time === chart.at);
    const to = Math.max(0, Math.min(hour.points.length - 1, from + step));
    read(chart, hour.points[to].time);
  });
  return figure;
}
function read(chart, moment) {
  let found = null;
  if (moment !== null) {
    for (const point of hour.points) {
      if (!found || Math.abs(point.time - moment) < Math.abs(found.time - moment)) found = point;
    }
  }
  chart.at = found ? found.time : null;
  chart.cursor.setAttribute("d", found ? `M${across(found.time)} 0V${HEIGHT}` : "");
  say(chart.reading, found ? `${clock(found.time)}: ${chart.told(found[chart.field])}` : "");
}
function showChart(chart, current) {
  const points = hour.points.filter(point => point.time >= hour.now - HOUR);
  const values = points.map(point => point[chart.field]).filter(known);
  const most = Math.max(...values, current ?? 0, 0), scale = most || 1;
  let line = "", area = "", begun = null, last = null;
  const close = () => { if (begun !== null) area += `V${HEIGHT}H${begun}Z`; begun = null; };
  for (const point of points) {
    const value = point[chart.field];
    const x = Math.round(across(point.time)), y = known(value) ? (HEIGHT - 4 - (HEIGHT - 10) * value / scale).toFixed(1) : null;
    if (y === null || (last !== null && point.time - last > GAP)) close();
    if (y !== null) {
      line += `${begun === null ? "M" : "L"}${x} ${y}`;
      area += begun === null ? `M${x} ${HEIGHT}V${y}` : `L${x} ${y}`;
      begun ??= x;
      last = point.time;
    }
  }
  close();
  mark(chart.line, "d", line);
  mark(chart.area, "d", area);
  say(chart.now, chart.told(current));
  say(chart.begin, `${time(span())} ago`);
  say(chart.top, values.length ? `most ${chart.told(most)}` : "no figures yet");
  const least = values.length ? Math.min(...values) : null;
  mark(chart.svg, "aria-label", `${chart.title}, ${chart.unit}, over the last ${time(span())}: now ${chart.told(current)}, `
    + `least ${chart.told(least)}, most ${chart.told(values.length ? most : null)}. Arrow keys read the points.`);
  if (known(chart.at)) chart.cursor.setAttribute("d", `M${across(chart.at)} 0V${HEIGHT}`);
}
function showFigures() {
  if (!at("figures").open) return;
  const rows = [];
  for (let from = Math.floor(hour.now / 300) * 300; from > hour.now - HOUR; from -= 300) {
    const part = hour.points.filter(point => point.time >= from && point.time < from + 300);
    const mean = field => {
      const values = part.map(point => point[field]).filter(known);
      return values.length ? sum(values.map(value => ({ value })), "value") / values.length : null;
    };
    if (part.length) rows.push([from, mean("rate"), mean("lag"), mean("delay"), sum(part, "commits"), sum(part, "failed_commits")]);
  }
  keep(at("figures").querySelector("tbody"), rows, row => row[0], () => make("tr"), (element, row) =>
    cells(element, [clock(row[0])], [short(row[1]), "n"], [short(row[2]), "n"], [time(row[3]), "n"], [count(row[4]), "n"], [count(row[5]), "n"]));
}

const TRACKS = [
  ["Trouble", entry => entry.kind === "trouble"], ["Commits", entry => entry.kind === "commit"],
  ["Rebalances", entry => entry.kind === "rebalance"], ["DDL", entry => entry.kind === "ddl"],
  ["Reloads", entry => entry.kind === "reload" || entry.kind === "worker"],
];
const EVENT_CHIP = { good: "good", info: "busy", warn: "warn", bad: "bad" };
const FIRST_EVENTS = 8;
let allEvents = false;

function showStrip() {
  const lately = [...hour.entries.values()].filter(entry => entry.time >= hour.now - HOUR).sort((a, b) => a.id - b.id);
  keep(at("strip"), TRACKS, track => track[0], track => {
    const svg = draw("svg", "", { viewBox: `0 0 ${HOUR} 10`, preserveAspectRatio: "none", role: "img" });
    return make("div", "track", make("span", "quiet", track[0]), svg);
  }, (element, [title, belongs]) => {
    const svg = element.lastChild, marks = [];
    let made = 0, failed = 0;
    if (title === "Commits") {
      for (const point of hour.points) {
        made += point.commits;
        failed += point.failed_commits;
        if (point.commits || point.failed_commits) marks.push([point.time, point.failed_commits ? "bad" : "good", 5]);
      }
    }
    const own = lately.filter(belongs);
    for (const entry of own) marks.push([entry.time, entry.level, 14]);
    keep(svg, marks.map((each, number) => [number, ...each]), each => each[0], () => draw("rect", "", { y: 0, height: 10 }),
      (rect, [, moment, level, width]) => {
        mark(rect, "x", String(Math.round(across(moment) - width)));
        mark(rect, "width", String(width));
        mark(rect, "class", level);
      });
    mark(svg, "aria-label", title === "Commits" ? `Commits: ${count(made)}, ${count(failed)} failed` : `${title}: ${plural(own.length, "event")}`);
  });
  const latest = [...hour.entries.values()].sort((a, b) => b.time - a.time || b.id - a.id);
  const shown = allEvents ? latest : latest.slice(0, FIRST_EVENTS);
  keep(at("events").tBodies[0], shown, entry => entry.id, () => make("tr", "", make("td"), make("td", "", make("span")), make("td")), (row, entry) => {
    say(row.children[0], clock(entry.time));
    say(row.children[1].firstChild, entry.count > 1 ? `${entry.event} × ${count(entry.count)}` : entry.event, `chip ${EVENT_CHIP[entry.level]}`);
    say(row.children[2], entry.text);
  });
  at("more-events").hidden = allEvents || latest.length <= FIRST_EVENTS;
  say(at("more-events"), `Show all ${count(latest.length)}`);
}
