// The search, and the keyboard for tables and code that scroll sideways. Pages work without it.
const form = document.getElementById("search");
const input = document.getElementById("query");
const panel = document.getElementById("found");
const count = document.getElementById("count");
const list = document.getElementById("hits");
let worker;
let asked = 0;

function ask() {
  const query = input.value.trim();
  panel.hidden = query.length < 2;
  if (panel.hidden) return;

  if (!worker) {
    worker = new Worker("/assets/search.js");
    worker.onmessage = ({ data }) => data.number === asked && show(data);
    worker.onerror = () => { count.textContent = "The search index cannot be loaded."; };
    count.textContent = "Loading the index …";
  }
  worker.postMessage({ number: ++asked, query });
}

function show({ count: found, hits }) {
  count.textContent = found === 0 ? "Nothing found." : found === 1 ? "1 section" : `${found} sections`;
  list.replaceChildren(...hits.map(({ at, page, title }) => {
    const item = document.createElement("li");
    const link = item.appendChild(document.createElement("a"));
    link.href = at;
    link.appendChild(document.createElement("strong")).textContent = title;
    if (page !== title) link.appendChild(document.createElement("span")).textContent = page;
    return item;
  }));
}

form.hidden = false;
input.addEventListener("input", ask);
input.addEventListener("focus", ask);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  list.querySelector("a")?.click();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    panel.hidden = true;
    input.focus();
    panel.hidden = true;
  }
});
list.addEventListener("click", () => { panel.hidden = true; });
document.addEventListener("click", (event) => { if (!form.contains(event.target)) panel.hidden = true; });
form.addEventListener("focusout", (event) => { if (event.relatedTarget && !form.contains(event.relatedTarget)) panel.hidden = true; });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, textarea")) {
    event.preventDefault();
    input.focus();
  }
});

// Gives a tab stop to code and tables that scroll sideways.
function reachable() {
  for (const [place, one] of document.querySelectorAll("pre, .wide").entries()) {
    if (one.scrollWidth > one.clientWidth) {
      one.tabIndex = 0;
      one.setAttribute("role", "region");
      one.setAttribute("aria-label", `${one.tagName === "PRE" ? "Code" : "Table"} ${place + 1}`);
    } else {
      ["tabindex", "role", "aria-label"].forEach((name) => one.removeAttribute(name));
    }
  }
}
reachable();
addEventListener("resize", reachable);
