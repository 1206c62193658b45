
// Asks the server that this page is from, with its token, again and again. Of the page are `turn`, which asks for everything and shows it, and
// `ASKED`, the name of what is asked.

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

// --- how it goes

let goneSince = null;

function notice(text) {
  id("notice").textContent = text;
  id("notice").hidden = text === "";
}

function answers() {
  goneSince = null;
  document.body.className = "live";
  id("ask").hidden = true;
  id("main").hidden = false;
}

function fails(error) {
  if (error instanceof Refused) {
    id("wrong").textContent = error.token === null ? "" : "That is not its token.";
    sessionStorage.removeItem(KEY);
    id("ask").hidden = false;
    id("main").hidden = true;
    document.body.className = "";
    id("state").textContent = "waiting for the token";
    return notice("");
  }
  goneSince ??= Date.now();
  document.body.className = "gone";
  id("state").textContent = "no answer";
  notice(`${ASKED} has not answered since ${clock(goneSince, true)}. This page goes on asking; the figures below are from before.`);
}

// --- time goes by

let timer = null, run = 0;

function begin() {
  clearTimeout(timer);
  turn(++run);
}

// Nobody sees a hidden page; it asks again when it is shown.
function again(mine, pause) {
  if (mine === run && !document.hidden) timer = setTimeout(() => turn(mine), pause);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) begin(); });
