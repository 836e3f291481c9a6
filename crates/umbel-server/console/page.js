// The parts that all pages share: requests to the server, elements, numbers and tables. Everything
// that comes from the store is put on the page as text, whose control characters are escaped.

export const main = document.querySelector("#main");
const said = document.querySelector("#said");
// The caller is undefined until the server has answered.
export const server = { user: undefined, hasUsers: false, isAdmin: false, isOperator: false };

// -- the server ------------------------------------------------------------------------------------

// A response that is an error. Its status says what the page can do about it.
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Most letters of a line of text with the reason of a refusal.
const LINE_MAX = 500;

// Whether a text is a refusal of the server: one line that no cache keeps. Texts of proxies differ.
function isOwnLine(response, line) {
  const isPlain = (response.headers.get("content-type") ?? "").startsWith("text/plain");
  const isUncached = response.headers.get("cache-control") === "no-store";
  return isPlain && isUncached && line !== "" && line.length <= LINE_MAX && !/[<\n]/.test(line);
}

// The reason of a refusal, and what the user can do. A browser sends a password until its windows are closed.
function withRemedy(status, reason) {
  if (status === 401) return `${reason}. Load the page again to log in.`;
  if (status !== 403 || !reason.startsWith("Access Denied")) return reason;
  return `${reason}. To log in as another user, open the console in a private window of the browser.`;
}

async function answerOf(request) {
  let response;
  try {
    response = await request;
  } catch {
    throw new ServerError(0, "The server cannot be reached: it is stopped, or its certificate changed.");
  }
  const text = (await response.text().catch(() => "")).trim();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    // A caller without access gets a line of text.
    if (!response.ok && isOwnLine(response, text)) throw new ServerError(response.status, withRemedy(response.status, text));
    const what = response.ok ? "The response is cut off or not from the server" : "The response is not from the server";
    throw new ServerError(response.status, `${what} (status ${response.status}): look at the proxy and the connection.`);
  }
  if (!response.ok) {
    const reason = answer?.error ?? `the server responded with status ${response.status}`;
    throw new ServerError(response.status, withRemedy(response.status, reason));
  }
  return answer;
}

export function queryText(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
}

// The page that requested this was left meanwhile.
export class Superseded extends Error {}

// The address in the browser names no page. Another attempt would fail, too.
export class WrongAddress extends Error {}

let page = 0;
export const beginPage = () => (page += 1);
export const reload = () => dispatchEvent(new Event("umbel-reload"));

export async function view(name, query = {}) {
  const requested = page;
  const answer = await answerOf(fetch(`/console/api/${name}?${queryText(query)}`)).catch((error) => {
    if (requested !== page) throw new Superseded();
    throw error;
  });
  if (requested !== page) throw new Superseded();
  return answer;
}

export async function change(name, fields) {
  const headers = { "content-type": "application/json", "x-umbel-console": "1" };
  const body = JSON.stringify(fields);
  return answerOf(fetch(`/console/api/${name}`, { method: "POST", headers, body }));
}

export function say(text) {
  said.textContent = visible(text);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (said.textContent = ""), 6000);
}

// Runs an action and shows its result.
export async function attempt(what, work) {
  try {
    await work();
    if (what) say(what);
    return true;
  } catch (error) {
    if (error instanceof Superseded) return true;
    say(`Failed: ${error.message}`);
    return false;
  }
}

// -- text ------------------------------------------------------------------------------------------

// Control characters, and those that change the direction of the text around them. With these, a client
// could make one name look like another.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const SPACES = new Map([["\t", "\\t"], ["\n", "\\n"], ["\r", "\\r"]]);
const hex = (number, digits) => number.toString(16).padStart(digits, "0");
const escapedBytes = (letter) => [...new TextEncoder().encode(letter)].map((byte) => `\\x${hex(byte, 2)}`).join("");

// A text on one line, with the escapes of the command line.
export const visible = (text) => text.replace(HIDDEN, (letter) => SPACES.get(letter) ?? escapedBytes(letter));
// A text whose line breaks and tabs stay.
const visibleLines = (text) => text.replace(HIDDEN, (letter) => (SPACES.has(letter) ? letter : escapedBytes(letter)));
// A token of JSON, with the escapes of JSON: it keeps its value.
export const visibleJson = (token) => token.replace(HIDDEN, (letter) => `\\u${hex(letter.charCodeAt(0), 4)}`);

// The value of an input that was filled with visible(text): the text itself, unless the user changed it.
export const valueOf = (input, text) => (input.value === visible(text) ? text : input.value);

// -- elements --------------------------------------------------------------------------------------

// Children without those that a page leaves out. The DOM shows null as the word "null".
function present(element, children) {
  const shown = element.tagName === "PRE" ? visibleLines : visible;
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return kept.map((child) => (typeof child === "string" ? shown(child) : child));
}

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, name === "aria-label" ? visible(value) : value);
  }
  element.append(...present(element, children));
  return element;
}

// Replaces the children of an element.
export const put = (element, ...children) => element.replaceChildren(...present(element, children));

// Elements whose focused link or button is not there for a while, with its text.
const lostFocus = new WeakMap();

// Replaces the children of an element that is drawn again and again. The focus stays on the link or
// button with the same text, or returns to it once it is there again.
export function refresh(element, ...children) {
  const active = document.activeElement;
  const text = element.contains(active) ? active.textContent : active === document.body ? lostFocus.get(element) : null;
  put(element, ...children);
  lostFocus.delete(element);
  if (!text) return;
  const same = [...element.querySelectorAll("a, button")].find((one) => one.textContent === text && !one.disabled);
  if (same) same.focus({ preventScroll: true });
  else lostFocus.set(element, text);
}

export const link = (href, text, attributes = {}) => el("a", { href, ...attributes }, text);
export const address = (page, ...rest) => `#/${[page, ...rest.map(encodeURIComponent)].join("/")}`;
export const streamLink = (name) => link(address("stream", name), name);
export const button = (text, onclick, attributes = {}) => el("button", { type: "button", onclick, ...attributes }, text);

// A label with its input.
export const field = (id, text, input, note) =>
  [el("label", { for: id }, text), input, note ? el("p", { class: "soft", id: `${id}-note` }, note) : null];

export function show(title, ...parts) {
  document.title = `${visible(title)} – Umbel`;
  put(main, el("h1", {}, title), parts);
  main.setAttribute("aria-busy", "false");
}

// A table: columns are [title, "number" | "tight" | "optional" | ""].
export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return el("p", { class: "soft" }, empty);
  const head = columns.map(([title, kind]) => el("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    el("tr", {}, row.map((cell, at) => el("td", { class: columns[at][1] }, cell ?? ""))),
  );
  return el(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)),
  );
}

// -- numbers ---------------------------------------------------------------------------------------

/* A number with separators; "–" for no number. The server sends revisions and positions as strings of
   digits, since a JavaScript number rounds them from 2^53 on. */
export function number(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "string" && /^-?\d+$/.test(value)) return BigInt(value).toLocaleString("en");
  const count = Number(value);
  return Number.isFinite(count) ? count.toLocaleString("en") : "–";
}

// A count with its noun.
export const counted = (count, noun) => `${number(count)} ${Number(count) === 1 ? noun : `${noun}s`}`;

export const percent = (share) => (Number.isFinite(share) ? `${(share * 100).toPrecision(3)} %` : "–");

// What a continuous backup lacks: "" for nothing, null if that is unknown.
export function backupLag({ lagBytes, lagWrites }) {
  const lag = lagBytes ?? lagWrites ?? null;
  if (lag === null) return null;
  return lag === 0 ? "" : lagBytes === undefined ? counted(lag, "write") : bytes(lag);
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) [count, unit] = [count / 1024, unit + 1];
  return `${unit === 0 ? number(Math.round(count)) : count.toFixed(1)} ${units[unit]}`;
}

// -- times -----------------------------------------------------------------------------------------

const two = (count) => String(count).padStart(2, "0");

// The local time with milliseconds.
export function localTime(micros) {
  const date = new Date(micros / 1000);
  if (Number.isNaN(date.getTime())) return "–";
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  return `${day} ${time}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

export function utcTime(micros) {
  const date = new Date(micros / 1000);
  return Number.isNaN(date.getTime()) ? "–" : date.toISOString().replace("T", " ").replace("Z", " UTC");
}

export function moment(micros) {
  const utc = utcTime(micros);
  if (utc === "–") return utc;
  return el("time", { datetime: new Date(micros / 1000).toISOString(), title: utc }, localTime(micros));
}

// -- repetition ------------------------------------------------------------------------------------

let timers = [];

// Repeats an action while the page is shown and visible. A failure is shown until a repetition works.
export function every(milliseconds, work) {
  let busy = false;
  const timer = setInterval(async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      await work();
      outage(null);
    } catch (error) {
      if (!(error instanceof Superseded)) outage(error);
    }
    busy = false;
  }, milliseconds);
  timers.push(timer);
}

export function endRepetitions() {
  for (const timer of timers) clearInterval(timer);
  timers = [];
  outage(null);
}

// Shows that the page is not up to date, and why.
export function outage(error) {
  const shown = document.querySelector("#outage");
  const text = error ? visible(`Not up to date: ${error.message}`) : "";
  if (shown.textContent !== text) shown.textContent = text;
}
