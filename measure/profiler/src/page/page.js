"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const read = (id) => (element(id) ? JSON.parse(element(id).textContent) : null);
  const now = read("profile"), before = read("before");
  const STATES = ["runs", "gc", "gvl", "lock", "io", "sleep"];
  const NAMES = { runs: "runs", gc: "collects garbage", gvl: "waits for the GVL", lock: "waits in a lock", io: "waits for I/O", sleep: "sleeps" };
  const ROW = 1.5; // rem
  const view = { search: null, path: null, route: "", slowest: 1, states: new Set(STATES), lines: false, down: true, sort: "own" };
  let tree, old, zoom, boxes = [], focused = null;

  const percent = (part, whole) => `${((100 * part) / (whole || 1)).toFixed(1)} %`;
  const seconds = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(2)} s` : `${(us / 1e3).toFixed(1)} ms`);
  const own = (node) => node.own.reduce((sum, us) => sum + us, 0);
  const make = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // The requests that the filters let through; null: all, also samples without a request.
  function chosen(profile) {
    if (!view.path && !view.route && view.slowest === 1) return null;
    const meant = profile.requests.map((one) => (!view.path || view.path.test(one.path)) && (!view.route || one.route === view.route));
    const times = profile.requests.filter((one, at) => meant[at] && one.ms !== null).map((one) => one.ms).sort((a, b) => b - a);
    const whole = !view.path && !view.route;
    const count = whole ? Math.max(times.length, profile.workers.reduce((sum, worker) => sum + worker.requests, 0)) : times.length;
    const limit = view.slowest === 1 ? -1 : times[Math.min(times.length, Math.max(1, Math.ceil(count * view.slowest))) - 1] ?? Infinity;
    return profile.requests.map((one, at) => meant[at] && (limit < 0 || (one.ms !== null && one.ms >= limit)));
  }

  const fresh = (key, parent, name, file, line) => ({ key, parent, name, file, line, own: [0, 0, 0, 0, 0, 0], sums: [0, 0, 0, 0, 0, 0], total: 0, children: new Map(), depth: parent ? parent.depth + 1 : 0 });

  // The tree of what is chosen, and the sums by method and by line.
  function grow(profile) {
    const requests = chosen(profile), root = fresh("", null, "all", null, 0);
    const nodes = [], methods = new Map(), lines = new Map();
    const child = (parent, key, name, file, line) => {
      let node = parent.children.get(key);
      if (!node) parent.children.set(key, (node = fresh(key, parent, name, file, line)));
      return node;
    };
    profile.stacks.forEach(([parent, frame, line], at) => {
      const { name, file } = profile.frames[frame], shown = view.lines && line ? line : 0;
      nodes[at] = child(parent === null ? root : nodes[parent], `${name}\0${file || ""}\0${shown}`, name, file, shown);
    });
    const entry = (map, key, name, file, line) => {
      if (!map.has(key)) map.set(key, { name, file, line, own: [0, 0, 0, 0, 0, 0], total: 0, native: new Map() });
      return map.get(key);
    };
    for (const [stack, state, request, us] of profile.samples) {
      const at = STATES.indexOf(state);
      if (at < 0 || !view.states.has(state) || (requests && (request === null || !requests[request]))) continue;
      const node = stack === null ? child(root, "?", "(stack unknown)", null, 0) : nodes[stack];
      node.own[at] += us;
      for (let up = node; up; up = up.parent) { up.total += us; up.sums[at] += us; }
      let first = true, native = null;
      const seen = new Set();
      for (let up = stack; up !== null; up = profile.stacks[up][0]) {
        const [, frame, line] = profile.stacks[up], { name, file } = profile.frames[frame];
        if (file === null) { if (first) native = name; continue; }
        for (const [map, key, shown] of [[methods, `${name}\0${file}`, 0], [lines, `${name}\0${file}\0${line}`, line]]) {
          const time = entry(map, key, name, file, shown);
          if (first) { time.own[at] += us; if (native) time.native.set(native, (time.native.get(native) || 0) + us); }
          if (!seen.has(key)) { seen.add(key); time.total += us; }
        }
        first = false;
      }
    }
    prune(root);
    return { root, methods, lines };
  }

  function prune(node) {
    for (const [key, one] of node.children) { if (one.total) prune(one); else node.children.delete(key); }
  }

  // How a share has changed since the profile before, from -1 to 1.
  function change(node) {
    let other = old.root;
    const keys = [];
    for (let up = node; up.parent; up = up.parent) keys.push(up.key);
    for (const key of keys.reverse()) { other = other && other.children.get(key); }
    const was = other ? other.total / (old.root.total || 1) : 0;
    return node.total / (tree.root.total || 1) - was;
  }

  function colour(node) {
    if (before) {
      const by = change(node), strength = Math.min(100, Math.round(Math.abs(by) * 1000));
      return `color-mix(in srgb, var(--${by > 0 ? "more" : "less"}) ${strength}%, var(--same))`;
    }
    const parts = STATES.map((state, at) => [state, node.sums[at] / (node.total || 1)]).filter(([, share]) => share > 0.005);
    if (parts.length === 1) return `var(--${parts[0][0]})`;
    let from = 0;
    const stops = parts.map(([state, share]) => { const stop = `var(--${state}) ${(from * 100).toFixed(2)}% ${((from + share) * 100).toFixed(2)}%`; from += share; return stop; });
    return `linear-gradient(to right, ${stops.join(", ")})`;
  }

  const place = (node) => (node.file ? `${node.file}${node.line ? `:${node.line}` : ""}` : node.parent ? "function in C" : "");
  const matches = (node) => view.search && node.parent && (view.search.test(node.name) || view.search.test(place(node)));

  function describe(node) {
    const states = STATES.map((state, at) => [NAMES[state], node.sums[at]]).filter(([, us]) => us).sort((a, b) => b[1] - a[1]);
    const text = `${seconds(node.total)}, ${percent(node.total, tree.root.total)} of all; self ${percent(own(node), tree.root.total)}`;
    const moved = before ? `; ${(change(node) * 100).toFixed(1).replace(/^(?=\d)/, "+")} points` : "";
    return { title: node.parent ? node.name : "All requests", place: place(node), text: text + moved, states: states.map(([name, us]) => `${name} ${percent(us, node.total)}`).join(", ") };
  }

  function tell(node) {
    const { title, place: at, text, states } = describe(node);
    element("detail").replaceChildren(make("b", title), ...(at ? [make("span", at, "where"), make("br")] : []), make("span", text), make("br"), make("span", states));
  }

  function draw() {
    const flame = element("flame"), drawn = [], ancestors = [];
    for (let up = zoom; up; up = up.parent) ancestors.unshift(up);
    const least = 100 / Math.max(300, flame.clientWidth || 1000) * 1.5;
    ancestors.forEach((node) => drawn.push({ node, left: 0, width: 100, above: node !== zoom }));
    const below = (node, left, width) => {
      let at = left;
      const list = [...node.children.values()].sort((a, b) => b.total - a.total);
      for (const one of list) {
        const size = (width * one.total) / (node.total || 1);
        if (size >= least) { drawn.push({ node: one, left: at, width: size }); below(one, at, size); }
        at += size;
      }
    };
    below(zoom, 0, 100);
    const deepest = Math.max(...drawn.map(({ node }) => node.depth));
    flame.style.height = `${(deepest + 1) * ROW}rem`;
    let found = 0;
    boxes = drawn.map(({ node, left, width, above }) => {
      const box = make("div", node.parent ? node.name : `all: ${seconds(node.total)}`, "box");
      box.setAttribute("role", "treeitem");
      box.setAttribute("aria-level", node.depth + 1);
      box.tabIndex = -1;
      box.style.left = `${left}%`;
      box.style.width = `${width}%`;
      box.style.top = `${(view.down ? node.depth : deepest - node.depth) * ROW}rem`;
      box.style.background = colour(node);
      if (above) box.classList.add("above");
      const { title, place: at, text, states } = describe(node);
      box.setAttribute("aria-label", [title, at, text, states].filter(Boolean).join("; "));
      box.title = [title, at, text, states].filter(Boolean).join("\n");
      if (view.search) {
        const is = matches(node);
        box.classList.add(is ? "found" : "dim");
        if (is) found += 1;
      }
      box.addEventListener("click", () => { focus(node); zoomTo(node); });
      box.addEventListener("focus", () => { focused = node; tell(node); });
      box.addEventListener("mouseenter", () => tell(node));
      return { node, box, left };
    });
    flame.replaceChildren(...boxes.map(({ box }) => box));
    const current = boxes.find(({ node }) => node === focused) || boxes.find(({ node }) => node === zoom);
    if (current) { current.box.tabIndex = 0; focused = current.node; tell(current.node); }
    element("found").textContent = view.search ? `${found} found, ${percent(covered(tree.root), tree.root.total)} of the time` : "";
  }

  // Time below the outermost boxes that match.
  function covered(node) {
    if (matches(node)) return node.total;
    let sum = 0;
    for (const one of node.children.values()) sum += covered(one);
    return sum;
  }

  function focus(node) {
    const at = boxes.find((one) => one.node === node);
    if (!at) return;
    boxes.forEach(({ box }) => { box.tabIndex = -1; });
    at.box.tabIndex = 0;
    at.box.focus({ preventScroll: false });
  }

  function zoomTo(node) {
    zoom = node;
    const had = element("flame").contains(document.activeElement);
    focused = node;
    draw();
    if (had) focus(node);
  }

  function keys(event) {
    const node = focused || zoom, level = boxes.filter((one) => one.node.depth === node.depth).sort((a, b) => a.left - b.left);
    const at = level.findIndex((one) => one.node === node), down = view.down ? "ArrowDown" : "ArrowUp", up = view.down ? "ArrowUp" : "ArrowDown";
    const first = boxes.filter((one) => one.node.parent === node).sort((a, b) => b.node.total - a.node.total)[0];
    let target = null;
    if (event.key === down) target = first && first.node;
    else if (event.key === up) target = node.parent;
    else if (event.key === "ArrowRight") target = level[at + 1] && level[at + 1].node;
    else if (event.key === "ArrowLeft") target = level[at - 1] && level[at - 1].node;
    else if (event.key === "Home") target = zoom;
    else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return zoomTo(node); }
    else if (event.key === "Escape") { event.preventDefault(); return zoomTo(zoom.parent || tree.root); }
    else return undefined;
    event.preventDefault();
    if (target) focus(target);
    return undefined;
  }

  function table(id, map, withLine) {
    const rows = [...map.values()].sort((a, b) => (view.sort === "own" ? own(b) - own(a) : b.total - a.total)).slice(0, 20);
    element(id).replaceChildren(...rows.filter((row) => own(row) || row.total).map((row) => {
      const line = make("tr"), state = STATES[row.own.indexOf(Math.max(...row.own))];
      line.append(make("td", percent(own(row), tree.root.total), "number"), make("td", percent(row.total, tree.root.total), "number"));
      const shown = make("td");
      if (own(row)) { shown.append(make("span", "", `swatch ${state}`), NAMES[state]); }
      const name = make("td"), find = make("button", withLine ? `${row.file}:${row.line}` : row.name);
      find.type = "button";
      find.addEventListener("click", () => { element("search").value = `^${row.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`; search(); });
      const native = [...row.native].sort((a, b) => b[1] - a[1])[0];
      name.append(find, make("br"), make("span", `${withLine ? row.name : row.file}${native && native[1] * 2 >= own(row) ? `, in ${native[0]}` : ""}`, "where"));
      line.append(shown, name);
      return line;
    }));
  }

  function shares() {
    element("share").replaceChildren(...STATES.map((state, at) => {
      const part = make("span", "", state);
      part.style.width = percent(tree.root.sums[at], tree.root.total).replace(" ", "");
      return part;
    }));
  }

  function refresh() {
    tree = grow(now);
    old = before && grow(before);
    zoom = tree.root;
    focused = null;
    draw();
    shares();
    table("methods", tree.methods, false);
    table("lines", tree.lines, true);
    element("empty").hidden = tree.root.total > 0;
  }

  function pattern(input) {
    input.removeAttribute("aria-invalid");
    if (!input.value) return null;
    try { return new RegExp(input.value, "i"); } catch { input.setAttribute("aria-invalid", "true"); return null; }
  }

  function search() { view.search = pattern(element("search")); draw(); }

  for (const state of STATES) {
    const label = make("label"), box = make("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { if (box.checked) view.states.add(state); else view.states.delete(state); refresh(); });
    label.append(box, " ", make("span", "", `swatch ${state}`), NAMES[state]);
    element("states").append(label);
  }
  const routes = [...new Set(now.requests.map((one) => one.route).filter(Boolean))].sort();
  routes.forEach((route) => element("route").append(make("option", route)));
  element("route").parentElement.hidden = routes.length === 0;
  element("search").addEventListener("input", search);
  element("path").addEventListener("input", () => { view.path = pattern(element("path")); refresh(); });
  element("route").addEventListener("change", () => { view.route = element("route").selectedIndex ? element("route").value : ""; refresh(); });
  element("slowest").addEventListener("change", () => { view.slowest = Number(element("slowest").value); refresh(); });
  element("by-line").addEventListener("change", () => { view.lines = element("by-line").checked; refresh(); });
  element("upwards").addEventListener("change", () => { view.down = !element("upwards").checked; draw(); });
  element("reset").addEventListener("click", () => { element("search").value = ""; view.search = null; zoomTo(tree.root); });
  document.querySelectorAll("[data-sort]").forEach((button) => button.addEventListener("click", () => { view.sort = button.dataset.sort; table("methods", tree.methods, false); table("lines", tree.lines, true); }));
  element("flame").addEventListener("keydown", keys);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|SELECT/.test(document.activeElement.tagName)) { event.preventDefault(); element("search").focus(); }
  });
  window.addEventListener("resize", draw);
  document.body.classList.add("ready");
  refresh();
})();
