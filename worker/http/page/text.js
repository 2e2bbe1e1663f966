"use strict";
// What every part of the page needs. Names and errors come from other systems: they are only ever set as text.
const at = id => document.getElementById(id);

// What turns the writing around, shows nothing, or adds to a space is written out: one name could pose as another.
const ODD = /(?![ \n\t])[\p{C}\p{Z}\p{DI}\u2800]/gu;
const ODD_IN_NAMES = /(?! )[\p{C}\p{Z}\p{DI}\u2800]|(?<=^| ) | $/gu;
function visible(text, odd = ODD) {
  if (typeof text !== "string") return text;
  return text.replace(odd, each => [...Array(each.length).keys()].map(unit => "\\u" + each.charCodeAt(unit).toString(16).padStart(4, "0")).join(""));
}
const named = name => visible(name ?? "", ODD_IN_NAMES);
// A long name is cut by the style: its title has all of it.
function sayName(element, name) {
  say(element, named(name));
  mark(element, "title", named(name));
}
function make(tag, kind, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children.map(child => visible(child)));
  return element;
}
function draw(tag, kind, attributes = {}) {
  const element = document.createElementNS(at("brand").namespaceURI, tag);
  if (kind) element.setAttribute("class", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
// Only what has changed is touched: what somebody selects, or is about to press, stays.
function say(element, text, kind) {
  const shown = String(visible(text) ?? "");
  if (element.textContent !== shown) element.textContent = shown;
  if (kind !== undefined && element.className !== kind) element.className = kind;
}
function mark(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
// The children of `parent` become one for each item, in their order; those that are there already stay.
function keep(parent, items, key, create, update) {
  const there = new Map([...parent.children].map(child => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const [number, item] of items.entries()) {
    const name = String(key(item, number));
    let child = there.get(name);
    there.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of there.values()) child.remove();
}
function cells(row, ...columns) {
  columns.forEach(([text, kind], number) => {
    if (!row.children[number]) row.append(make("td", kind));
    say(row.children[number], text, kind ?? "");
  });
}

const known = value => value !== null && value !== undefined;
function count(value) { return known(value) ? Math.round(value).toLocaleString("en") : "–"; }
function short(value) {
  if (!known(value)) return "–";
  if (value < 10) return String(Number(value.toFixed(1)));
  if (value < 10000) return Math.round(value).toLocaleString("en");
  const [size, unit] = value < 1e6 ? [1e3, "k"] : value < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${Number((value / size).toPrecision(3))} ${unit}`;
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
function time(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`;
}
const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const clock = unix => CLOCK.format(new Date(unix * 1000));
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const sum = (items, field) => items.reduce((total, item) => total + (item[field] ?? 0), 0);
