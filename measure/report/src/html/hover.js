"use strict";
// Shows the row of the table behind a plot that belongs to the place under the pointer.
for (const figure of document.querySelectorAll("figure")) {
  const rows = figure.querySelectorAll("tbody tr");
  const heads = Array.from(figure.querySelectorAll("thead th"), (head) => head.textContent);
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);

  const nearest = (places, x) => {
    let best = -1;
    let distance = Infinity;
    places.forEach((place, index) => {
      const away = place >= 0 ? Math.abs(place - x) : Infinity;
      if (distance > away) [best, distance] = [index, away];
    });
    return best;
  };

  const show = (row, event) => {
    const cells = Array.from(row.cells, (cell) => cell.textContent);
    const first = document.createElement("b");
    first.textContent = [heads[0], cells[0]].filter(Boolean).join(" ");
    tip.replaceChildren(first);
    cells.slice(1).forEach((cell, index) => {
      const head = heads[index + 1];
      if (cell) tip.append(head ? head + ": " + cell : cell, document.createElement("br"));
    });
    tip.hidden = false;
    const box = figure.getBoundingClientRect();
    const x = event.clientX - box.left;
    const beside = x > box.width / 2 ? x - tip.offsetWidth - 14 : x + 14;
    tip.style.left = Math.max(0, Math.min(beside, box.width - tip.offsetWidth)) + "px";
    tip.style.top = Math.max(0, event.clientY - box.top - tip.offsetHeight / 2) + "px";
  };

  for (const svg of figure.querySelectorAll("svg")) {
    const places = (svg.dataset.places || "").split(" ").filter(Boolean).map(Number);
    const guide = svg.querySelector(".guide");
    const hide = () => {
      tip.hidden = true;
      if (guide) guide.style.visibility = "hidden";
    };
    const move = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const mark = event.target.closest("[data-row]");
      const index = places.length > 0 ? nearest(places, x) : mark ? Number(mark.dataset.row) : -1;
      const row = rows[index];
      if (!row) return hide();
      if (guide) {
        guide.setAttribute("x1", places[index]);
        guide.setAttribute("x2", places[index]);
        guide.style.visibility = "visible";
      }
      show(row, event);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", hide);
  }
}
