// The API, which static.json maps to /api. Error responses are thrown, with their status.

async function ask(method, path, body) {
  const sent = body && { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(`/api${path}`, { method, ...sent });
  const text = await response.text();
  const type = response.headers.get("content-type") ?? "";
  const data = type.startsWith("application/json") ? JSON.parse(text) : {};
  if (!response.ok) throw Object.assign(new Error(data.error ?? `The response was ${response.status}.`), { status: response.status });
  return data;
}

export const allTasks = () => ask("GET", "/tasks");
export const oneTask = (id) => ask("GET", `/tasks/${id}`);
export const addTask = (title) => ask("POST", "/tasks", { title });
export const setDone = (id, done) => ask("PATCH", `/tasks/${id}`, { done });
