// User accounts.

import { attempt, button, change, el, field, link, reload, server, show, table, view } from "./page.js";

export async function users(_, query) {
  const found = await view("users", { after: query.get("after") ?? "" });
  const act = (text, what, login) =>
    button(text, () => attempt("Done.", () => change("user", { do: what, login }).then(reload)), { "aria-label": `${text} ${login}` });
  const rows = found.users.map((user) => [
    user.login, user.fullName, user.groups.join(", "),
    el("span", { class: user.isDisabled ? "tag" : "tag good" }, user.isDisabled ? "disabled" : "enabled"),
    [user.isDisabled ? act("Enable", "enable", user.login) : act("Disable", "disable", user.login), " ", act("Delete", "delete", user.login)],
  ]);
  const inputs = {
    login: el("input", { type: "text", id: "u-login", required: true, autocomplete: "off" }),
    fullName: el("input", { type: "text", id: "u-name" }),
    password: el("input", { type: "password", id: "u-password", required: true, autocomplete: "new-password" }),
    groups: el("input", { type: "text", id: "u-groups", placeholder: "$ops, readers" }),
  };
  const form = el("details", { class: "form" }, el("summary", {}, "Add a user"),
    el("form", {
      onsubmit: (event) => {
        event.preventDefault();
        const groups = inputs.groups.value.split(",").map((group) => group.trim()).filter(Boolean);
        const fields = { do: "create", login: inputs.login.value, fullName: inputs.fullName.value, password: inputs.password.value, groups };
        attempt("Added.", () => change("user", fields).then(reload));
      },
    },
    field("u-login", "Login name", inputs.login), field("u-name", "Full name", inputs.fullName),
    field("u-password", "Password", inputs.password), field("u-groups", "Groups", inputs.groups),
    el("div", { class: "row" }, el("button", { class: "main" }, "Add"))));
  show("Users",
    server.hasUsers ? [] : el("p", {}, "This server does not authenticate clients (--insecure): users take effect once it runs without that option."),
    form,
    table("Users of the server", [["Name", ""], ["Full name", "optional"], ["Groups", ""], ["", "tight"], ["", "tight"]], rows, "There are no users."),
    found.next ? el("p", {}, link(`#/users?after=${encodeURIComponent(found.next)}`, "More")) : []);
}
