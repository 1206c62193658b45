// Changes the page when a file of the site is saved (site.live_reload). It keeps the place in the page and what was typed.
(() => {
  let known = null;
  let lost = false;

  const source = new EventSource("/.firebrick/live");
  source.onerror = () => { lost = true; };
  source.onopen = () => {
    // The server was restarted, or its rules have changed.
    if (lost) refresh();
    lost = false;
  };
  source.onmessage = (event) => changed(JSON.parse(event.data));

  function changed(paths) {
    const styles = paths.filter((path) => /\.css$/i.test(path));
    const used = new Set(performance.getEntriesByType("resource").map((entry) => decodeURI(new URL(entry.name).pathname)));
    if (paths.some((path) => !styles.includes(path) && used.has(path))) return location.reload();
    if (styles.length) restyle(styles);
    refresh();
  }

  // Loads style sheets again. One that is imported by another is known to that one only, so then all are loaded.
  function restyle(paths) {
    const own = [...document.querySelectorAll("link[rel~=stylesheet][href]")].filter((link) => new URL(link.href).origin === location.origin);
    const named = own.filter((link) => paths.includes(decodeURI(new URL(link.href).pathname)));
    for (const link of named.length ? named : own) {
      const next = link.cloneNode();
      const url = new URL(link.href);
      url.searchParams.set("live", Date.now());
      next.href = url;
      next.dataset.liveHref = link.dataset.liveHref ?? link.getAttribute("href");
      // The old one stays until the new one is there, so that the page does not flash.
      next.onload = () => link.remove();
      next.onerror = () => next.remove();
      link.after(next);
    }
  }

  async function text() {
    const response = await fetch(location.href, { cache: "no-store", headers: { Accept: "text/html" } });
    return response.text();
  }

  const scripts = (page) => [...page.querySelectorAll("script")].map((script) => script.outerHTML).join("\n");

  async function refresh() {
    const html = await text().catch(() => null);
    if (html === null || html === known) return;
    const parse = (source) => new DOMParser().parseFromString(source, "text/html");
    const next = parse(html);
    // Scripts would not run again, so another script needs another page.
    if (known === null || scripts(parse(known)) !== scripts(next)) return location.reload();
    known = html;
    morph(document.documentElement, next.documentElement);
  }

  // Makes a node like another one, with as few changes as possible.
  function morph(from, to) {
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    if (from.isEqualNode(to) || isLink(from, to)) return;
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    let at = from.firstChild;
    for (const next of [...to.childNodes]) {
      const same = found(at, next);
      if (!same) {
        from.insertBefore(document.importNode(next, true), at);
        continue;
      }
      while (at !== same) at = without(at);
      at = same.nextSibling;
      morph(same, next);
    }
    while (at) at = without(at);
  }

  function without(node) {
    const next = node.nextSibling;
    node.remove();
    return next;
  }

  const alike = (node, other) => node.nodeType === other.nodeType && node.nodeName === other.nodeName && (node.id ?? "") === (other.id ?? "");

  // Returns the node that is to become another one: an equal one nearby, or the next one if it is of the same kind.
  function found(at, next) {
    for (let node = at, steps = 0; node && steps < 50; node = node.nextSibling, steps++) {
      if (isLink(node, next) || node.isEqualNode(next) || (next.id && alike(node, next))) return node;
    }
    return at && alike(at, next) ? at : null;
  }

  // A style sheet that was loaded again has another address.
  const isLink = (node, next) => node.nodeName === "LINK" && next.nodeName === "LINK" && node.dataset.liveHref === next.getAttribute("href");

  addEventListener("load", async () => { known = await text().catch(() => null); });
})();
