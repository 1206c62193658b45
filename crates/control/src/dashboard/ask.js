
// Asks the server that this page is from, with its token. `begin` is the page's own.

const id = (name) => document.getElementById(name);
const KEY = "firebrick-token", PATIENCE = 8000;

// --- the token: out of the address, into this tab

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token") ?? new URLSearchParams(location.search).get("token");
  if (given === null) return;
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

async function ask(target) {
  const token = sessionStorage.getItem(KEY);
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(target, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (answer.status === 403) throw new Refused(token);
  if (!answer.ok) throw new Error(`it answered ${answer.status}`);
  return answer.json();
}

class Refused extends Error {
  constructor(token) { super("Invalid auth token"); this.token = token; }
}

id("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, id("token").value.trim());
  id("token").value = "";
  begin();
});
