
"use strict";

// Numbers for people, tiles, and charts over time: lines, areas and stacked columns, as SVG. Nothing here asks the server.

function element(name, attributes = {}, ...children) {
  const made = ["svg", "g", "path", "line", "text", "circle", "rect"].includes(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// At most three digits below a thousand.
function significant(number) {
  const size = Math.abs(number);
  if (size < 0.0005) return "0";
  if (size >= 99.95 || Number.isInteger(number)) return Math.round(number).toLocaleString("en");
  if (size < 0.995) return String(Number(number.toFixed(3)));
  return number.toFixed(size < 9.995 ? 2 : 1);
}

function bytes(number) {
  const units = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  const [unit, size] = units.find(([, size]) => number >= 0.9995 * size) ?? ["B", 1];
  return `${significant(number / size)} ${unit}`;
}

function time(ms) {
  if (ms < 999.5) return `${significant(ms)} ms`;
  return ms < 99950 ? `${significant(ms / 1000)} s` : span(ms / 1000);
}

function span(seconds) {
  const [s, two] = [Math.floor(seconds), (large, unit, small, rest) => small ? `${large} ${unit} ${small} ${rest}` : `${large} ${unit}`];
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86400) return two(Math.floor(s / 3600), "h", Math.floor(s % 3600 / 60), "min");
  return two(Math.floor(s / 86400), "d", Math.floor(s % 86400 / 3600), "h");
}

function percent(part) {
  const percent = part * 100;
  return `${percent >= 9.95 || percent < 0.05 ? Math.round(percent) : percent.toFixed(1)} %`;
}

const many = (number, one, more) => `${significant(number)} ${number === 1 ? one : more}`;

function clock(at, seconds = false) {
  const parts = { hour: "2-digit", minute: "2-digit", hour12: false };
  return new Date(at).toLocaleTimeString("en-GB", seconds ? { ...parts, second: "2-digit" } : parts);
}

// The least of 1, 2, 5 times a power of `base` that makes at most `count` steps up to `most`.
function stepFor(most, count, base = 10) {
  const least = most / count;
  const power = base ** Math.floor(Math.log(least) / Math.log(base));
  const factors = base === 2 ? [1, 2] : [1, 2, 5, 10];
  return power * (factors.find((factor) => power * factor >= least * 0.9999) ?? factors.at(-1));
}

// A figure and its name.
function tile(name, value, more, style = "") {
  return element("div", { class: style }, element("h2", {}, name), element("strong", {}, value), element("small", {}, more));
}

// --- charts

// The least and the most that charts show, in milliseconds.
const SHORTEST = 120000, HOUR = 3600000;

const perMinute = (of) => (point) => of(point) / point.seconds * 60;

const HEIGHT = 190, LEFT = 58, RIGHT = 10, TOP = 8, BOTTOM = 22;

// One figure. `series`: name, style (a class), of (a point's value, null when there is none), fill, column (stacked).
class Chart {
  constructor(place, { title, tell, series, least = 0, base = 10 }) {
    Object.assign(this, { tell, series, least, base, points: [] });
    this.when = element("time");
    this.legend = element("ul");
    this.svg = element("svg", { role: "img" });
    this.title = title;
    this.figure = element("figure", {}, element("figcaption", {}, element("h2", {}, title), this.when, this.legend), this.svg);
    place.append(this.figure);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  show(points, from, to, step) {
    Object.assign(this, { points, from, to, step });
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!width || this.to === undefined) return;
    const highest = Math.max(this.least, ...this.points.map((point) => this.height(point)));
    const step = stepFor(highest || 1, 4, this.base);
    const top = Math.ceil((highest || 1) / step * 0.9999) * step;
    this.x = (at) => LEFT + (at - this.from) / (this.to - this.from) * (width - LEFT - RIGHT);
    this.y = (value) => HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...this.axes(width, top, step), ...this.curves(), ...this.cursor());
    this.tellValues();
  }

  height(point) {
    const of = (kind) => this.series.filter((one) => Boolean(one.column) === kind).map((one) => one.of(point) ?? 0);
    return Math.max(of(true).reduce((sum, value) => sum + value, 0), ...of(false), 0);
  }

  axes(width, top, step) {
    const made = [];
    for (let value = 0; value <= top * 1.0001; value += step) {
      const y = this.y(value);
      made.push(element("line", { class: value ? "grid" : "base", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      made.push(element("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.tell(value)));
    }
    // As many marks as fit, at round minutes of the clock that people see.
    const minutes = (this.to - this.from) / 60000, room = Math.max(2, Math.floor((width - LEFT) / 80));
    const every = [1, 2, 5, 10, 15, 20, 30].find((one) => minutes / one <= room) ?? 60;
    const offset = new Date(this.from).getTimezoneOffset() * 60000;
    for (let at = Math.ceil((this.from - offset) / (every * 60000)) * every * 60000 + offset; at <= this.to; at += every * 60000) {
      made.push(element("text", { x: Math.min(this.x(at), width - RIGHT - 16), y: HEIGHT - 5, "text-anchor": "middle" }, clock(at)));
    }
    return made;
  }

  curves() {
    const columns = this.series.filter((one) => one.column);
    const made = this.points.flatMap((point) => {
      let below = 0;
      const left = this.x(Math.max(this.from, point.at - point.seconds * 1000)), width = Math.max(1, this.x(point.at) - left - 0.5);
      return columns.filter((one) => one.of(point) > 0).map((one) => {
        const [from, to] = [this.y(below), this.y(below += one.of(point))];
        return element("rect", { class: `column ${one.style}`, x: left, y: to, width, height: from - to });
      });
    });
    for (const one of this.series.filter((one) => !one.column)) {
      for (const run of this.runs(one)) made.push(...this.curve(one, run));
    }
    return made;
  }

  // Points that belong together: where something is missing, so is the line.
  runs({ of }) {
    const runs = [[]];
    let last = null;
    for (const point of this.points) {
      const apart = last !== null && point.at - point.seconds * 1000 - last > this.step * 1500;
      if (of(point) === null || apart) runs.push([]);
      if (of(point) !== null) runs.at(-1).push([this.x(point.at), this.y(of(point))]);
      last = point.at;
    }
    return runs.filter((run) => run.length);
  }

  curve({ style, fill }, run) {
    const path = run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
    if (run.length < 3) return run.map(([cx, cy]) => element("circle", { class: `dot ${style}`, cx, cy, r: 3 }))
      .concat(element("path", { class: `curve ${style}`, d: `M${path}` }));
    const base = this.y(0), area = `M${run[0][0]},${base}L${path}L${run.at(-1)[0]},${base}Z`;
    return [...fill ? [element("path", { class: `fill ${style}`, d: area })] : [], element("path", { class: `curve ${style}`, d: `M${path}` })];
  }

  point(event) {
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const near = (point) => Math.abs(this.x(point.at) - x);
    this.at = this.points.reduce((best, point) => best && near(best) <= near(point) ? best : point, null);
    this.draw();
  }

  cursor() {
    if (!this.at) return [];
    const x = this.x(this.at.at);
    return [element("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM })];
  }

  // Values of the moment under the cursor, or else of the last one.
  tellValues() {
    const point = this.at ?? this.points.at(-1);
    this.when.textContent = point ? (this.at ? clock(point.at, true) : "last 10 s") : "";
    const told = (one) => point && one.of(point) !== null ? this.tell(one.of(point)) : "–";
    this.legend.replaceChildren(...this.series.map((one) =>
      element("li", {}, element("i", { class: one.style }), `${one.name} `, element("b", {}, told(one)))));
    const label = `${this.title}: ${this.series.map((one) => `${one.name} ${told(one)}`).join(", ")}`;
    this.svg.setAttribute("aria-label", label);
  }
}
