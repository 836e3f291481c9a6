// The console: navigation between its pages.

import { event } from "./event.js";
import { group, groups } from "./groups.js";
import { live } from "./live.js";
import {
  beginPage, button, el, endRepetitions, link, main, server, show, Superseded, view, visible, WrongAddress,
} from "./page.js";
import { overview } from "./overview.js";
import { search } from "./search.js";
import { store } from "./store.js";
import { stream, streams } from "./streams.js";
import { account, user, users } from "./users.js";
import { views } from "./views.js";
import { work } from "./work.js";

const PAGES = {
  overview, streams, stream, event, search, live, views, groups, group, store, work, users, user, account,
};
// Pages below another page of the navigation.
const PARENTS = { stream: "streams", event: "streams", search: "streams", group: "groups", user: "users" };

// Who the caller is, and what the caller may do. Pages show buttons by it.
async function identify() {
  const { user: name, hasUsers, isAdmin, isOperator } = await view("overview");
  Object.assign(server, { user: name, hasUsers, isAdmin, isOperator });
  const who = document.querySelector("#who");
  who.textContent = visible(name ?? (hasUsers ? "" : "insecure"));
  if (name) who.href = "#/account";
  document.querySelector("#users-link").hidden = !isAdmin;
}

// The names in an address.
function decoded(parts) {
  try {
    return parts.map(decodeURIComponent);
  } catch {
    throw new WrongAddress("The address has a percent sign without two hexadecimal digits, or bytes that are no UTF-8; %25 is the sign itself");
  }
}

async function route() {
  endRepetitions();
  beginPage();
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const shown = name || "overview";
  for (const anchor of document.querySelectorAll("nav a")) {
    const isHere = anchor.getAttribute("href") === `#/${Object.hasOwn(PARENTS, shown) ? PARENTS[shown] : shown}`;
    if (isHere) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    if (server.user === undefined) await identify();
    // Names such as __proto__ are inherited and no pages.
    if (!Object.hasOwn(PAGES, shown)) throw new WrongAddress(`The console has no page ${shown}`);
    await PAGES[shown](decoded(rest), new URLSearchParams(search));
  } catch (error) {
    if (error instanceof Superseded) return;
    if (error instanceof WrongAddress) {
      return show("Page not found", el("p", { class: "bad", role: "alert" }, `${error.message}.`), link("#/overview", "Overview"));
    }
    show("Page not loaded", el("p", { class: "bad", role: "alert" }, error.message), button("Try again", route));
  }
}

function theme(chosen) {
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (chosen) document.documentElement.dataset.theme = chosen;
  const switched = document.querySelector("#theme");
  switched.setAttribute("aria-pressed", String(isDark));
  // Plots have the colours of the theme.
  dispatchEvent(new Event("umbel-redraw"));
}

document.querySelector("#theme").addEventListener("click", (event) => {
  const chosen = event.target.getAttribute("aria-pressed") === "true" ? "light" : "dark";
  localStorage.setItem("umbel-theme", chosen);
  theme(chosen);
});
theme(localStorage.getItem("umbel-theme"));
addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("umbel-reload", route);
// The link to the content would replace the address of the page.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => dispatchEvent(new Event("umbel-redraw")), 200);
});

await route();
