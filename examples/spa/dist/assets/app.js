// Ties the routes to the views.

import { start } from "./router.js";
import { about, home, nowhere, task, tasks } from "./views.js";

start(
  document.getElementById("view"),
  [
    [/^\/$/, home],
    [/^\/tasks\/?$/, tasks],
    [/^\/tasks\/(\d+)$/, task],
    [/^\/about$/, about],
  ],
  nowhere,
);
