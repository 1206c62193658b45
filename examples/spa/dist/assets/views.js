// The view of each path.

import { addTask, allTasks, oneTask, setDone } from "./api.js";
import { h } from "./dom.js";

export async function home() {
  const tasks = await allTasks();
  const done = tasks.filter((task) => task.done).length;
  const next = tasks.find((task) => !task.done);
  return {
    title: "Site Diary",
    content: [
      h("p", { class: "over" }, "The garden wall"),
      h("h1", {}, `${done} of ${tasks.length} done`),
      h("progress", { value: done, max: tasks.length, "aria-label": "Tasks done" }),
      next
        ? h("a", { class: "card next", href: `/tasks/${next.id}` }, h("small", {}, "Next"), h("strong", {}, next.title), h("span", {}, next.note))
        : h("p", { class: "card" }, "The wall stands."),
      h("p", {}, h("a", { href: "/tasks" }, "All tasks")),
    ],
  };
}

export async function tasks() {
  const list = h("ul", { class: "tasks" }, ...(await allTasks()).map(line));
  const problem = h("p", { role: "alert" });
  const title = h("input", { name: "title", "aria-label": "New task", placeholder: "Something to do", maxlength: 120, required: true, autocomplete: "off" });
  const add = async (event) => {
    event.preventDefault();
    await reporting(problem, async () => {
      list.append(line(await addTask(title.value)));
      title.value = "";
    });
  };
  return {
    title: "Tasks",
    content: [h("h1", {}, "Tasks"), list, h("form", { onsubmit: add }, title, h("button", {}, "Add")), problem],
  };
}

export async function task(id) {
  const found = await oneTask(id);
  return {
    title: found.title,
    content: [
      h("p", { class: "over" }, h("a", { href: "/tasks" }, "Tasks"), ` / ${found.id}`),
      h("h1", {}, found.title),
      found.note ? h("p", { class: "note" }, found.note) : "",
      h("p", {}, tick(found, "Done")),
    ],
  };
}

export function about() {
  return {
    title: "About",
    content: [
      h("h1", {}, "About"),
      h("p", {}, "A page, four small modules and a style sheet, exactly as they are on disk. There is no build step."),
      h("p", {}, "Each address of this app can be opened directly: the server serves the page for unknown paths, 404 for unknown assets, and forwards /api to the API."),
    ],
  };
}

export function nowhere(path) {
  return {
    title: "Not found",
    content: [h("h1", {}, "Not found"), h("p", {}, "There is nothing at ", h("code", {}, path), "."), h("p", {}, h("a", { href: "/" }, "Back to the start"))],
  };
}

function line(task) {
  return h("li", {}, tick(task, ""), h("a", { href: `/tasks/${task.id}` }, task.title));
}

// A checkbox that is ticked once the API has confirmed it.
function tick(task, text) {
  const problem = h("span", { role: "alert" });
  const box = h("input", {
    type: "checkbox",
    checked: task.done,
    "aria-label": text ? false : `${task.title}: done`,
    onchange: async () => {
      const wanted = box.checked;
      box.disabled = true;
      const taken = await reporting(problem, () => setDone(task.id, wanted));
      if (!taken) box.checked = !wanted;
      box.disabled = false;
    },
  });
  return h("label", { class: "tick" }, box, text, problem);
}

// Runs work and shows its error; returns whether it succeeded.
async function reporting(problem, work) {
  try {
    problem.textContent = "";
    await work();
    return true;
  } catch (error) {
    problem.textContent = error.message;
    return false;
  }
}
