// The console: navigation between its pages.

import { groups } from "./groups.js";
import { live } from "./live.js";
import { beginPage, button, el, endRepetitions, main, say, server, show, Superseded, view } from "./page.js";
import { store } from "./store.js";
import { stream, streams } from "./streams.js";
import { users } from "./users.js";
import { views } from "./views.js";
import { work } from "./work.js";

const PAGES = { streams, stream, live, views, groups, store, work, users };
// Pages below another page of the navigation.
const PARENTS = { stream: "streams" };

async function route() {
  endRepetitions();
  beginPage();
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  // Names such as __proto__ are inherited and no pages.
  const shown = Object.hasOwn(PAGES, name) ? name : "streams";
  for (const anchor of document.querySelectorAll("nav a")) {
    const isHere = anchor.getAttribute("href") === `#/${Object.hasOwn(PARENTS, shown) ? PARENTS[shown] : shown}`;
    if (isHere) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    await PAGES[shown](rest.map(decodeURIComponent), new URLSearchParams(search));
  } catch (error) {
    if (error instanceof Superseded) return;
    show("Page not loaded", el("p", { class: "bad", role: "alert" }, error.message), button("Try again", route));
  }
}

function theme(chosen) {
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (chosen) document.documentElement.dataset.theme = chosen;
  const switched = document.querySelector("#theme");
  switched.setAttribute("aria-pressed", String(isDark));
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

try {
  const overview = await view("overview");
  Object.assign(server, overview);
  document.querySelector("#who").textContent = overview.user ?? (overview.hasUsers ? "" : "insecure");
  document.querySelector("#users-link").hidden = !overview.isAdmin;
} catch (error) {
  say(error.message);
}
await route();
