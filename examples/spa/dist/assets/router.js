// A router on the History API: links within the site change the view instead of loading a page, and back and forward
// work. A view is a function that gets the captures of its path and returns { title, content }, or a promise of that.

import { h } from "./dom.js";

export function start(outlet, routes, nowhere) {
  let latest = 0;

  async function show({ focus }) {
    const mine = ++latest;
    const path = location.pathname;
    outlet.setAttribute("aria-busy", "true");
    const { title, content } = await look(routes, nowhere, path);
    if (mine !== latest) return; // the user has already moved on to another view
    document.title = title === "Site Diary" ? title : `${title} · Site Diary`;
    outlet.replaceChildren(...content);
    outlet.removeAttribute("aria-busy");
    markCurrent(path);
    if (focus) {
      outlet.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !plain || event.defaultPrevented || link.target || link.origin !== location.origin) return;
    event.preventDefault();
    if (link.href !== location.href) history.pushState(null, "", link.href);
    show({ focus: true });
  });
  addEventListener("popstate", () => show({ focus: false }));
  show({ focus: false });
}

async function look(routes, nowhere, path) {
  for (const [pattern, view] of routes) {
    const match = pattern.exec(path);
    if (!match) continue;
    try {
      return await view(...match.slice(1));
    } catch (error) {
      return failed(error);
    }
  }
  return nowhere(path);
}

function failed(error) {
  if (error.status === 404) return { title: "Not found", content: [h("h1", {}, "Not found"), h("p", {}, "It may have been removed from the list.")] };
  return {
    title: "No response",
    content: [
      h("h1", {}, "The API does not respond"),
      h("p", { role: "alert" }, error.message),
      h("p", {}, h("a", { href: location.pathname }, "Try again")),
    ],
  };
}

function markCurrent(path) {
  for (const link of document.querySelectorAll("nav a")) {
    const here = path === link.pathname || path.startsWith(`${link.pathname}/`);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}
