
// Shows several servers: every two seconds what is now, and the last hour of all together.

const EVERY = 2000, ASKED = "firebrick top --serve";
let charts = null, sorted = { by: null, down: true };

const ms = (of) => (point) => point.requests > 0 ? of(point) : null;
const CHARTS = [
  { title: "Response time", tell: time, series: [
    { name: "mean", style: "one", of: ms((point) => point.mean_ms) }, { name: "p95", style: "two", of: ms((point) => point.p95_ms) },
    { name: "p99", style: "three", of: ms((point) => point.p99_ms) }] },
  { title: "Throughput, requests per minute", tell: significant, series: [{ name: "requests/min", style: "one", fill: true, of: perMinute((point) => point.requests) }] },
  { title: "Servers up", tell: significant, least: 4, series: [{ name: "up", style: "one", fill: true, of: (point) => point.up }] },
  { title: "CPUs in use", tell: significant, series: [{ name: "CPUs", style: "one", fill: true, of: (point) => point.cpus }] },
  { title: "Queue", tell: significant, least: 4, series: [
    { name: "waiting", style: "two", fill: true, of: (point) => point.queue }, { name: "being served", style: "one", of: (point) => point.busy }] },
  { title: "Errors per minute", tell: significant, least: 4, series: [
    { name: "5xx", style: "bad", column: true, of: perMinute((point) => point.errors) }, { name: "4xx", style: "warn", column: true, of: perMinute((point) => point.refused) }] },
];

function showTotals({ totals }) {
  const times = totals.total_ms, known = times.count > 0;
  id("tiles").replaceChildren(
    tile("Servers up", `${totals.up} of ${totals.servers}`, totals.unreachable ? many(totals.unreachable, "does not answer", "do not answer") : "all answer", totals.unreachable ? "bad" : ""),
    tile("Requests", `${significant(totals.requests_per_s)} /s`, many(totals.connections_open, "connection open", "connections open")),
    tile("Response time p95", known ? time(times.p95) : "–", known ? `p50 ${time(times.p50)}, p99 ${time(times.p99)}` : "no request in the last moment"),
    tile("Load", percent(totals.saturation), `${totals.busy.toLocaleString("en")} served, ${totals.queue.toLocaleString("en")} queued, of ${many(totals.seats, "seat", "seats")}`, totals.saturation > 1 ? "bad" : totals.saturation > 0.75 ? "warn" : ""),
    tile("CPU", significant(totals.cpus), `of ${significant(totals.cores)} CPUs`, totals.cpus > 0.9 * totals.cores ? "warn" : ""),
    tile("Memory", bytes(totals.pss_bytes), "PSS of all processes"),
    tile("Errors", `${significant(totals["5xx_per_s"])} /s`, `5xx; and ${significant(totals["4xx_per_s"])} /s with 4xx`, totals["5xx_per_s"] > 0 ? "bad" : ""),
  );
}

function showPoints({ points }) {
  charts ??= CHARTS.map((chart) => new Chart(id("charts"), chart));
  const to = points.at(-1)?.at ?? Date.now();
  const from = to - Math.min(HOUR, Math.max(SHORTEST, to - (points[0]?.at ?? to)));
  charts.forEach((chart) => chart.show(points, from, Math.max(to, from + SHORTEST), 10));
  id("charts").dataset.points = points.length;
}

// --- the table

const COLUMNS = [
  { title: "server", of: (one) => one.address, text: true },
  { title: "version", of: (one) => one.version, text: true },
  { title: "generation", of: (one) => one.generation, tell: (value, one) => one.workers_old ? `${value} (${one.workers - one.workers_old} of ${one.workers} workers)` : String(value), number: true },
  { title: "requests/s", of: (one) => one.requests_per_s, tell: significant, number: true },
  { title: "5xx/s", of: (one) => one.errors_per_s, tell: significant, number: true },
  { title: "p50", of: (one) => one.p50_ms, tell: time, number: true },
  { title: "p99", of: (one) => one.p99_ms, tell: time, number: true },
  { title: "queue", of: (one) => one.queue, tell: significant, number: true },
  { title: "load", of: (one) => one.saturation, tell: percent, number: true },
  { title: "CPUs", of: (one) => one.cpus, tell: significant, number: true },
  { title: "memory", of: (one) => one.pss_bytes, tell: bytes, number: true },
  { title: "restarts", of: (one) => one.restarts, tell: significant, number: true },
  { title: "up", of: (one) => one.for_s, tell: span, number: true },
];

function heading(column) {
  const chosen = sorted.by === column.title;
  const button = element("button", { type: "button", class: "sort" }, chosen ? `${column.title} ${sorted.down ? "▼" : "▲"}` : column.title);
  button.addEventListener("click", () => {
    sorted = { by: column.title, down: chosen ? !sorted.down : !column.text };
    showServers(shown);
  });
  return element("th", { class: column.number ? "number" : "", "aria-sort": chosen ? (sorted.down ? "descending" : "ascending") : "none" }, button);
}

const SIGNS = { unreachable: "✗", gone: "·", asked: "·", up: "" };

function row(one) {
  const stands = one.outlier.length > 0;
  const sign = one.state === "up" && stands ? "▲" : one.state === "up" && one.change ? "↻" : SIGNS[one.state];
  const name = element("td", { class: stands || one.state === "unreachable" ? "late" : "" }, sign ? `${sign} ${one.address}` : one.address);
  if (one.state !== "up") {
    const told = { unreachable: `${one.why ?? "it does not respond"}, for ${span(one.for_s)}`, gone: `no longer in the list, since ${span(one.for_s)}`, asked: "asking …" }[one.state];
    return [element("tr", { "data-state": one.state }, name, element("td", { colspan: COLUMNS.length - 1, class: "nothing" }, told))];
  }
  const cells = COLUMNS.slice(1).map((column) => element("td", { class: column.number ? "number" : "" }, column.tell ? column.tell(column.of(one), one) : column.of(one)));
  const rows = [element("tr", { "data-state": one.state }, name, ...cells)];
  const more = [stands ? `not like the others: ${one.outlier.join(", ")}` : "", one.change ?? ""].filter(Boolean);
  if (more.length) rows.push(element("tr", {}, element("td", { colspan: COLUMNS.length, class: stands ? "late why" : "why" }, more.join(" · "))));
  return rows;
}

let shown = null;

function showServers(told) {
  shown = told;
  const focused = document.activeElement?.classList.contains("sort") ? [...id("columns").querySelectorAll("button")].indexOf(document.activeElement) : -1;
  id("columns").replaceChildren(...COLUMNS.map(heading));
  if (focused >= 0) id("columns").querySelectorAll("button")[focused].focus();
  const column = COLUMNS.find((one) => one.title === sorted.by);
  const order = (one, other) => column.text ? column.of(one).localeCompare(column.of(other)) : column.of(one) - column.of(other);
  const rows = column ? [...told.servers].sort((one, other) => sorted.down ? order(other, one) : order(one, other)) : told.servers;
  id("servers").replaceChildren(...rows.flatMap(row));
  if (!rows.length) id("servers").append(element("tr", {}, element("td", { colspan: COLUMNS.length, class: "nothing" }, "No server has been found yet. Names are resolved every five seconds.")));
  const kinds = (all, word) => all.map((kind) => `${word}${kind.name} on ${kind.servers}`).join(", ");
  id("about").textContent = told.versions.length ? `version ${kinds(told.versions, "")}${told.generations.length > 1 ? ` · generation ${kinds(told.generations, "")}` : ""}` : "";
}

function showNotices({ notices, totals }) {
  const lines = totals.servers > 0 && totals.up === 0
    ? ["No server answers. Are their control ports open to this machine (control = \"tcp://0.0.0.0:9293\"), and is FIREBRICK_CONTROL_TOKEN theirs?", ...notices] : notices;
  id("notices").replaceChildren(...lines.map((line) => element("p", { class: "change running" }, line)));
}

// --- how it goes

function lives() {
  answers();
  id("state").textContent = "live";
  notice("");
}

async function turn(mine) {
  try {
    const told = await ask("fleet");
    lives();
    showNotices(told);
    showTotals(told);
    showPoints(told);
    showServers(told);
  } catch (error) {
    fails(error);
    if (error instanceof Refused) return;
  }
  again(mine, EVERY);
}

takeToken();
begin();
