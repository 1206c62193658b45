
// Asks the server and shows what it says: every two seconds what is now, every ten the last hour.

const NOW_EVERY = 2000, FIRST_RATES = 700, HISTORY_EVERY = 10000, ASKED = "The server";
let last = null, server = null, restartedAt = null;

// --- charts

const ms = (of) => (point) => point.requests > 0 ? of(point.total_ms) : null;
const CHARTS = [
  { title: "Response time", tell: time, series: [
    { name: "mean", style: "one", of: ms((times) => times.mean) }, { name: "p95", style: "two", of: ms((times) => times.p95) },
    { name: "p99", style: "three", of: ms((times) => times.p99) }] },
  { title: "Throughput, requests per minute", tell: significant, series: [{ name: "requests/min", style: "one", fill: true, of: perMinute((point) => point.requests) }] },
  { title: "Memory", tell: bytes, base: 2, least: 2 ** 23, series: [
    { name: "PSS", style: "one", fill: true, of: (point) => point.pss_bytes },
    { name: "RSS, added up", style: "two", of: (point) => point.rss_bytes || null }] },
  { title: "CPU", tell: percent, series: [{ name: "all processes", style: "one", fill: true, of: (point) => point.cpus / (server?.cores || 1) }] },
  { title: "Queue", app: true, tell: significant, least: 4, series: [
    { name: "waiting", style: "two", fill: true, of: (point) => point.queue }, { name: "being served", style: "one", of: (point) => point.busy_threads }] },
  { title: "Errors per minute", tell: significant, least: 4, series: [
    { name: "5xx", style: "bad", column: true, of: perMinute((point) => point.errors) }, { name: "4xx", style: "warn", column: true, of: perMinute((point) => point.client_errors) },
    { name: "client gone", style: "three", column: true, of: perMinute((point) => point.client_gone) }] },
];
let charts = null;

function showHistory(told) {
  const hasApp = server !== null && isApp(server);
  charts ??= CHARTS.filter((chart) => hasApp || !chart.app).map((chart) => new Chart(id("charts"), chart));
  const points = told.points.map((point) => ({ ...point, at: Date.parse(point.at) }));
  const since = Date.parse(told.since), to = points.at(-1)?.at ?? Date.parse(told.since);
  const from = to - Math.min(HOUR, Math.max(SHORTEST, to - since));
  charts.forEach((chart) => chart.show(points, from, Math.max(to, from + SHORTEST), told.step_s));
  id("charts").dataset.points = points.length;
  told.last = points.at(-1);
  latest = told;
}
let latest = null;

// --- now

const isApp = (told) => told.rack !== "" || told.workers.length > 0;

// Counters become what came since the last look at the same server.
function since(told, seconds) {
  const before = last && last.told.pid === told.pid && last.told.started_at === told.started_at ? last.told : null;
  const worker = (one) => before?.workers.find((old) => old.index === one.index && old.pid === one.pid) ?? { requests: 0, cpu_ms: 0 };
  const delta = (of) => before && seconds > 0 ? Math.max(0, of(told) - of(before)) / seconds : null;
  const cpu = (one) => before ? Math.max(0, one.cpu_ms - worker(one).cpu_ms) / 1000 / seconds : null;
  const front = delta((all) => all.cpu_ms);
  return {
    delta, cpu, requests: (one) => before ? Math.max(0, one.requests - worker(one).requests) / seconds : null,
    cpus: front === null ? null : front / 1000 + told.workers.reduce((sum, one) => sum + cpu(one), 0),
  };
}

const or = (value, tell) => value === null ? "…" : tell(value);
const sum = (told, of) => told.workers.reduce((all, one) => all + of(one), 0);

function showNow(told, now) {
  const between = since(told, last ? (now - last.at) / 1000 : 0);
  const times = latest?.last?.requests ? latest.last.total_ms : null;
  const pss = told.pss_bytes + sum(told, (one) => one.pss_bytes), cores = told.cores || 1;
  const failed = between.delta((all) => all.requests["5xx"]), refused = between.delta((all) => all.requests["4xx"]);
  const tiles = [
    tile("Requests", or(between.delta((all) => all.requests.total), (rate) => `${significant(rate)} /s`), many(told.connections.open, "connection open", "connections open")),
    tile("Response time p95", times ? time(times.p95) : "–", times ? `mean ${time(times.mean)}, p99 ${time(times.p99)}` : "no request in the last 10 s"),
    tile("CPU", or(between.cpus, (cpus) => percent(cpus / cores)), `of ${many(cores, "CPU", "CPUs")}`, between.cpus / cores > 0.9 ? "warn" : ""),
    tile("Memory", bytes(pss), told.memory_limit_bytes ? `${percent(pss / told.memory_limit_bytes)} of ${bytes(told.memory_limit_bytes)}` : "PSS of all processes",
      told.memory_limit_bytes && pss / told.memory_limit_bytes > 0.9 ? "warn" : ""),
    tile("Errors", or(failed, (rate) => `${significant(rate)} /s`), or(refused, (rate) => `5xx; and ${significant(rate)} /s with 4xx`), failed > 0 ? "bad" : ""),
  ];
  if (isApp(told)) {
    const [busy, most] = [sum(told, (one) => one.busy_threads), sum(told, (one) => one.threads_max)];
    const waits = told.queue.length ? `the first for ${time(told.queue.oldest_wait_ms)}` : `most so far ${told.queue.longest.toLocaleString("en")}`;
    tiles.splice(2, 0, tile("Queue", told.queue.length.toLocaleString("en"), waits, told.queue.length ? "warn" : ""), tile(`Busy ${seats(told)}`, `${busy} of ${most}`, many(told.workers.length, "worker", "workers")));
  }
  if (told.handlers) tiles.push(handlersTile(told.handlers, between));
  if (told.tls) tiles.push(tlsTile(told.tls, between, Date.parse(told.taken_at)));
  id("tiles").replaceChildren(...tiles);
  id("version").textContent = told.version;
  id("dir").textContent = told.dir;
  const what = isApp(told) ? `${told.ruby.engine} ${told.ruby.version} · Rack ${told.rack} · ${told.environment}` : told.handlers ? "handlers on mruby" : "static site";
  id("about").textContent = `${what} · pid ${told.pid} · up ${span((Date.parse(told.taken_at) - Date.parse(told.started_at)) / 1000)}`;
  document.title = `${told.dir.split("/").at(-1) || "Firebrick"} · Firebrick`;
  for (const name of ["flight", "crew"]) id(name).hidden = !isApp(told);
  showInterruptions(told);
  showChanges(told);
  showSize(told);
  showShape(told);
  showServices(told);
  id("routes").hidden = !told.routes?.length;
  id("ways").replaceChildren(...(told.routes ?? []).map((one) => routeRow(one, between)));
  id("busy").textContent = `busy ${seats(told)}`;
  id("generation").hidden = !hasGenerations(told);
  id("workers").replaceChildren(...told.workers.map((one) => workerRow(one, between, told)));
  id("handlers").hidden = !told.handlers;
  id("vms").replaceChildren(...(told.handlers?.threads ?? []).map((one) => vmRow(one, between)));
  id("certificates").hidden = !told.acme?.length;
  id("orders").replaceChildren(...(told.acme ?? []).map((one) => certificateRow(one, Date.parse(told.taken_at))));
}

// --- certificates that the server obtains by itself

function certificateRow(one, now) {
  const [from, until, next] = [one.not_before, one.not_after, one.next_order].map((at) => at === null ? null : Date.parse(at));
  const state = until === null ? "missing" : now > until ? "expired" : now < from ? "not yet valid" : `valid for ${span((until - now) / 1000)}`;
  const day = (at) => at === null ? "–" : new Date(at).toISOString().slice(0, 16).replace("T", " ");
  return element("tr", {}, cell(one.names.join(", ")), cell(state, state.startsWith("valid") ? "" : "late"), cell(one.issuer ?? "–"), cell(day(until)),
    cell(next === null ? "–" : next <= now ? "now" : `in ${span((next - now) / 1000)}`), cell(one.error ?? "", one.error ? "late" : ""));
}

function cell(text, style = "") {
  return element("td", style ? { class: style } : {}, text);
}

function seats(told) {
  if (told.workers.some((one) => one.fiber_paths)) return "seats";
  return told.workers.some((one) => one.fibers) ? "fibers" : "threads";
}

// With fiber_paths: those of threads, and those of fibers.
function seatsText(one) {
  const fibers = one.fiber_paths;
  if (!fibers) return `${one.busy_threads} of ${one.threads_max}`;
  return `${one.busy_threads - fibers.busy} of ${one.threads_max - fibers.max} threads, ${fibers.busy} of ${fibers.max} fibers`;
}

function workerRow(one, between, told) {
  const threads = element("span", { class: "threads", "aria-hidden": "true" });
  if (one.threads_max <= 16) {
    for (let index = 0; index < one.threads_max; index++) threads.append(element("b", { class: index < one.busy_threads ? "busy" : "" }));
  } else {
    threads.append(element("meter", { min: 0, max: one.threads_max, value: one.busy_threads }));
  }
  const up = (Date.parse(told.taken_at) - Date.parse(one.started_at)) / 1000;
  return element("tr", {}, cell(`${one.index} (pid ${one.pid})`), ...hasGenerations(told) ? [cell(String(one.phase + 1), one.phase === told.phase ? "number" : "number late")] : [], cell(one.state, one.state === "ready" ? "" : "late"),
    element("td", {}, threads, seatsText(one)), cell(or(between.requests(one), significant), "number"),
    cell(or(between.cpu(one), percent), "number"), cell(bytes(one.pss_bytes), "number"), cell(String(one.waiting), one.waiting ? "number late" : "number"),
    cell(String(one.restarts), "number"), cell(span(Math.max(0, up)), "number"));
}

// Which worker runs which code is worth a column once there was more than one.
const hasGenerations = (told) => told.phase > 0 || told.workers.some((one) => one.phase !== told.phase);

// --- what interrupts the service

function showInterruptions({ pause, maintenance_state: maintenance, taken_at }) {
  const paused = pause && pause.state !== "off", closed = maintenance?.on;
  id("pause").hidden = !paused;
  if (paused) id("pause").replaceChildren(element("b", {}, `Pause, ${pause.state}: `),
    `${pause.waiting.toLocaleString("en")} requests wait, ${pause.in_flight.toLocaleString("en")} in flight${pause.state === "on" ? `; ${span(pause.remaining_ms / 1000)} more` : ""}`);
  id("maintenance").hidden = !closed;
  if (closed) id("maintenance").replaceChildren(element("b", {}, "Maintenance: "),
    `on for ${span(Math.max(0, Date.parse(taken_at) - Date.parse(maintenance.since)) / 1000)}, by ${maintenance.by}; ${maintenance.responses.toLocaleString("en")} requests got the page`);
}

// --- reloads, upgrades, reforks

const CHANGES = [["reload", "Reload", ["done", "undone"]], ["upgrade", "Upgrade", ["done"]], ["refork", "Refork", ["done", "dropped"]]];

function showChanges(told) {
  const now = Date.parse(told.taken_at), ago = (at) => `${span(Math.max(0, now - Date.parse(at)) / 1000)} ago`;
  for (const [name, title, good] of CHANGES) {
    const { running, last } = told[`${name}s`] ?? {}, line = id(name);
    const failed = last && !good.includes(last.outcome);
    const told_last = last ? [element("b", {}, `Last ${name}: ${last.outcome.replaceAll("_", " ")}`), ` ${ago(last.at)}: ${last.text.split("\n  ")[0]}`] : [];
    // That the old code is kept for a while matters less than that the new code serves.
    const busy = running && running.stage !== "settling";
    line.hidden = !busy && !last;
    line.className = `change ${busy ? "running" : failed && now - Date.parse(last.at) < HOUR ? "bad" : ""}`;
    line.replaceChildren(...busy ? [element("progress", { "aria-hidden": "true" }), element("b", {}, `${title}, ${running.stage}: `), running.text] : told_last);
  }
}

// --- how many workers there should be, where that follows the load, and why it changed last

function showSize({ sizing, taken_at }) {
  const ranges = sizing && sizing.min < sizing.max;
  id("size").hidden = !ranges;
  if (!ranges) return;
  const last = sizing.last && `; ${sizing.last.to > sizing.last.from ? "grew" : "shrank"} ${sizing.last.from} → ${sizing.last.to}, ${span(Math.max(0, Date.parse(taken_at) - Date.parse(sizing.last.at)) / 1000)} ago: ${sizing.last.why}`;
  id("size").textContent = `${sizing.wanted} of ${sizing.min}:${sizing.max}${sizing.pinned ? ", set by a signal until the next reload" : ""}${last ?? ""}`;
}

// --- the shape that follows an objective

const STEPS = 10;

function showShape({ shape, taken_at }) {
  const now = Date.parse(taken_at);
  id("shape").hidden = !shape;
  id("steps").hidden = !shape?.steps.length;
  if (!shape) return;
  const holds = shape.holds === null ? "no request in the last 10 s" : `${shape.holds ? "holds" : "broken"}: ${time(shape.response_ms)} at the percentile, ${percent(shape.missed)} missed it`;
  const limit = shape.wait_limit_ms === null ? "" : `; overload: requests that would wait longer than ${time(shape.wait_limit_ms)} are refused`;
  id("shape").className = shape.holds === false ? "late" : "";
  id("shape").replaceChildren(element("b", {}, `Objective ${shape.objective}, `), `${holds}. Shape ${shape.workers}x${shape.seats}${limit}`);
  id("trials").replaceChildren(...shape.steps.slice(-STEPS).reverse().map((one) => element("tr", {}, cell(span(Math.max(0, now - Date.parse(one.at)) / 1000), "number"),
    cell(one.from === one.to ? one.to : `${one.from} → ${one.to}`), cell(one.verdict, ["refused", "overload"].includes(one.verdict) ? "late" : ""), cell(one.why, "story"))));
}

// --- services: processes that get no requests

function showServices({ services, taken_at }) {
  const now = Date.parse(taken_at);
  id("services").hidden = !services?.length;
  id("crafts").replaceChildren(...(services ?? []).map((one) => element("tr", {}, cell(one.name), cell(one.state, one.state === "running" ? "" : "late"),
    cell(span(Math.max(0, now - Date.parse(one.since)) / 1000), "number"), cell(one.pid ? String(one.pid) : "–", "number"),
    cell(one.restarts.toLocaleString("en"), one.restarts ? "number late" : "number"), cell(one.last_end))));
}

// --- routes: what requests are for

function routeRow(one, between) {
  const each = (sum, tell, count = one.app_ms.count) => cell(sum === null || count === 0 ? "–" : tell(sum / count), "number");
  const requests = between.delta((all) => all.routes?.find((other) => other.route === one.route)?.requests ?? 0);
  const share = element("td", {}, element("meter", { min: 0, max: 1, value: one.share, "aria-hidden": "true" }), percent(one.share));
  const times = ["p50", "p95", "p99"].map((name) => cell(one.total_ms.count ? time(one.total_ms[name]) : "–", "number"));
  return element("tr", {}, cell(one.route, "path"), share, cell(or(requests < 0 ? null : requests, significant), "number"), ...times,
    each(one.queue_ms.sum, time), each(one.cpu_ms, time), each(one.gvl_ms, time), each(one.gc_ms, time), each(one.allocations, significant),
    each(one.queries, significant), each(one.queries_ms, time), each(one.body_bytes, bytes, one.requests),
    cell(one.failures.toLocaleString("en"), one.failures ? "number late" : "number"));
}

// --- how workers ended

let buried = "";

// Asked for only when there are more than before.
async function showDeaths(told) {
  const counts = Object.entries(told.deaths ?? {}).filter(([, count]) => count > 0);
  id("graves").hidden = counts.length === 0;
  id("counted").textContent = `Since the start: ${counts.map(([cause, count]) => `${count.toLocaleString("en")} ${cause.replaceAll("_", " ")}`).join(", ")}.`;
  const known = `${told.pid} ${told.started_at} ${JSON.stringify(counts)}`;
  if (counts.length === 0 || known === buried) return;
  const deaths = await ask("deaths?limit=10");
  buried = known;
  id("deaths").replaceChildren(...deaths.map((one) => element("tr", {}, cell(moment(one.at)), cell(`${one.worker} (pid ${one.pid})`), cell(String(one.generation), "number"),
    cell(span(one.age_s), "number"), cell(one.requests.toLocaleString("en"), "number"), cell(one.peak_rss_bytes ? bytes(one.peak_rss_bytes) : "–", "number"),
    cell(one.cause.replaceAll("_", " "), USUAL.includes(one.cause) ? "" : "late"), element("td", { class: "story" }, one.text, ...one.in_flight.filter((request) => request.backtrace?.length).map(serving)))));
}
const USUAL = ["drain", "max_requests", "max_age"];

function serving(one) {
  return element("div", { class: "serving" }, `${one.method} ${one.path} was last seen at ${one.backtrace[0]}`);
}

// The time, and the day unless it is today.
function moment(at) {
  const then = new Date(at), today = new Date().toDateString() === then.toDateString();
  return today ? clock(then, true) : `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock(then)}`;
}

// --- TLS: handshakes, and the certificate that ends first

function tlsTile(now, between, time) {
  const complete = (all) => (all.tls?.full ?? 0) + (all.tls?.resumed ?? 0);
  const failed = between.delta((all) => Object.values(all.tls?.failed ?? {}).reduce((sum, count) => sum + count, 0));
  const days = Math.min(...now.certificates.map((one) => (Date.parse(one.not_after) - time) / 86_400_000));
  const certificate = !Number.isFinite(days) ? "no certificate" : days < 0 ? "a certificate EXPIRED" : `certificates: ${many(Math.floor(days), "day", "days")} left`;
  return tile("Handshakes", or(between.delta(complete), (rate) => `${significant(rate)} /s`),
    failed > 0 ? `${significant(failed)} /s failed; ${certificate}` : certificate, days < 0 ? "bad" : failed > 0 || days < 7 ? "warn" : "");
}

// --- handlers on mruby: each front thread has a VM, and limits, of its own

const HIGH = 0.9;

function handlersTile(now, between) {
  const failed = between.delta((all) => all.handlers?.failures ?? 0);
  const near = now.threads.some((one) => one.tasks > HIGH * one.tasks_max || one.heap_bytes > HIGH * one.heap_max_bytes);
  const tasks = `${many(now.tasks, "task", "tasks")}, ${now.waiting.toLocaleString("en")} waiting`;
  return tile("Handlers", or(between.delta((all) => all.handlers?.requests ?? 0), (rate) => `${significant(rate)} /s`),
    failed > 0 ? `${significant(failed)} /s failed; ${tasks}` : tasks, failed > 0 ? "bad" : near ? "warn" : "");
}

function vmRow(one, between) {
  const own = (name) => between.delta((all) => all.handlers?.threads[one.index]?.[name] ?? 0);
  const count = (name) => cell(one[name].toLocaleString("en"), own(name) > 0 ? "number late" : "number");
  const style = (part, whole) => part > HIGH * whole ? "late" : "";
  const meter = element("meter", { min: 0, max: one.heap_max_bytes, high: HIGH * one.heap_max_bytes, value: one.heap_bytes, "aria-hidden": "true" });
  const heap = element("td", { class: style(one.heap_bytes, one.heap_max_bytes) }, meter, `${bytes(one.heap_bytes)} of ${bytes(one.heap_max_bytes)}`);
  const tasks = `${one.tasks.toLocaleString("en")} of ${one.tasks_max.toLocaleString("en")}`;
  return element("tr", {}, cell(String(one.index)), heap, cell(tasks, style(one.tasks, one.tasks_max)), cell(one.waiting.toLocaleString("en"), "number"),
    cell(one.tasks_most.toLocaleString("en"), one.tasks_most >= one.tasks_max ? "number late" : "number"), cell(or(own("requests"), significant), "number"),
    count("failures"), count("refused"), count("vms_replaced"));
}

// --- requests in flight

function showRequests(told) {
  const rows = told.slice(0, 15).map((one) => {
    const where = element("button", { type: "button" }, "where?");
    where.addEventListener("click", () => trace(one));
    const place = one.worker === null ? "–" : one.thread === null ? String(one.worker) : `${one.worker}, thread ${one.thread}`;
    return element("tr", {}, cell(time(one.age_ms), one.age_ms > 1000 ? "number late" : "number"), cell(time(one.queue_ms), "number"), cell(one.state), cell(place),
      cell(`${one.method} ${one.path}`, "path"), one.state === "queued" ? cell("") : element("td", {}, where));
  });
  const none = element("tr", {}, element("td", { colspan: 6, class: "nothing" }, "Nothing is in flight."));
  id("requests").replaceChildren(...rows.length ? rows : [none]);
  id("columns").hidden = rows.length === 0;
}

async function trace(one) {
  const asked = performance.now();
  const tell = (...lines) => { id("lines").replaceChildren(...lines); id("trace").hidden = false; };
  id("asked").textContent = `${one.method} ${one.path}, worker ${one.worker}, at ${clock(Date.now(), true)}`;
  tell("Asking the worker …");
  try {
    const all = await ask("requests?limit=500&backtraces");
    const passed = performance.now() - asked + NOW_EVERY;
    const same = all.find((other) => other.pid === one.pid && other.thread === one.thread && other.path === one.path && other.age_ms >= one.age_ms && other.age_ms <= one.age_ms + passed + 1000);
    if (!same) return tell("The request is over.");
    if (!same.backtrace?.length) return tell("The worker could not tell in time.");
    const inside = `${server.dir}/`;
    // Ruby itself says where a rackup file is relative to the app's folder.
    const own = (line) => line.startsWith(inside) ? line.slice(inside.length) : /^[/<(]/.test(line) ? null : line;
    tell(...same.backtrace.map((line) => element("span", { class: own(line) === null ? "other" : "own" }, `${own(line) === null ? `  ${line}` : `▶ ${own(line)}`}\n`)));
  } catch (error) {
    tell(`The server does not answer: ${error.message}`);
  }
}

// --- what is said about the server as a whole

function lives(told) {
  if (server && (server.pid !== told.pid || server.started_at !== told.started_at)) {
    restartedAt = Date.now();
    last = latest = null;
  }
  server = told;
  answers();
  const points = latest?.points.length ?? 0;
  id("state").textContent = latest && points < 360 ? `live · collecting since ${clock(latest.since)}` : "live";
  const fresh = restartedAt && Date.now() - restartedAt < 60000 ? `Another server has been answering since ${clock(restartedAt, true)}: its history begins anew.` : "";
  notice(fresh || (latest && points < 2 ? `Collecting since ${clock(latest.since, true)}: a point of the charts is ten seconds, the first ones come in a moment.` : ""));
}

// --- time goes by

let historyDue = 0;

async function turn(mine) {
  const first = last === null;
  try {
    const told = await ask("stats");
    const now = performance.now();
    lives(told);
    if (now >= historyDue || !latest) {
      showHistory(await ask("history"));
      historyDue = now + HISTORY_EVERY;
      lives(told);
    }
    showNow(told, now);
    last = { told, at: now };
    if (isApp(told)) {
      showRequests(await ask("requests?limit=15"));
      await showDeaths(told);
    }
  } catch (error) {
    fails(error);
    if (error instanceof Refused) return;
  }
  again(mine, first && goneSince === null ? FIRST_RATES : NOW_EVERY);
}

takeToken();
begin();
