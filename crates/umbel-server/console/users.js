// User accounts, and the caller's own password.

import { confirmed } from "./groups.js";
import {
  address, attempt, button, change, el, field, link, put, reload, say, server, show, table, valueOf, view, visible,
} from "./page.js";

// Password managers need the name with the password.
const nameFor = (login) => el("input", { type: "text", value: login, autocomplete: "username", hidden: true, readonly: true, "aria-hidden": "true" });
const password = (id) => el("input", { type: "password", id, required: true, autocomplete: "new-password" });

function act(text, what, login) {
  return button(text, () => attempt("Done.", () => change("user", { do: what, login }).then(reload)), { "aria-label": `${text} ${login}` });
}

function addForm() {
  const inputs = {
    login: el("input", { type: "text", id: "u-login", required: true, autocomplete: "username" }),
    fullName: el("input", { type: "text", id: "u-name" }),
    password: password("u-password"),
    groups: el("input", { type: "text", id: "u-groups", placeholder: "$ops, readers" }),
  };
  return el("details", { class: "form" }, el("summary", {}, "Add a user"),
    el("form", {
      onsubmit: (event) => {
        event.preventDefault();
        const fields = { do: "create", login: inputs.login.value, fullName: inputs.fullName.value, password: inputs.password.value, groups: groupList(inputs.groups.value) };
        attempt("Added.", () => change("user", fields).then(reload));
      },
    },
    field("u-login", "Login name", inputs.login), field("u-name", "Full name", inputs.fullName),
    field("u-password", "Password", inputs.password), field("u-groups", "Groups", inputs.groups),
    el("div", { class: "row" }, el("button", { class: "main" }, "Add"))));
}

const groupList = (text) => text.split(",").map((group) => group.trim()).filter(Boolean);

export async function users(_, query) {
  const found = await view("users", { after: query.get("after") ?? "" });
  const rows = found.users.map((user) => [
    link(address("user", user.login), user.login), user.fullName, user.groups.join(", "),
    el("span", { class: user.isDisabled ? "tag" : "tag good" }, user.isDisabled ? "disabled" : "enabled"),
    el("div", { class: "row" },
      user.isDisabled ? act("Enable", "enable", user.login) : act("Disable", "disable", user.login),
      link(address("user", user.login), "Edit", { "aria-label": `Edit ${user.login}` })),
  ]);
  show("Users",
    server.hasUsers ? null : el("p", {}, "This server does not authenticate clients (--insecure): users take effect once it runs without that option."),
    addForm(),
    table("Users of the server", [["Name", ""], ["Full name", "optional"], ["Groups", ""], ["State", "tight"], ["", "tight"]], rows, "There are no users."),
    found.next ? el("p", {}, link(`#/users?after=${encodeURIComponent(found.next)}`, "More")) : null);
}

// One user: name and groups, a new password, and deletion.
export async function user([login = ""]) {
  const { users: found } = await view("users", { login });
  const known = found.find((one) => one.login === login);
  if (!known) return show(login, el("p", { class: "soft" }, "There is no user with this name."), link("#/users", "All users"));
  const fullName = el("input", { type: "text", id: "u-name", value: visible(known.fullName) });
  const joined = known.groups.join(", ");
  const groups = el("input", { type: "text", id: "u-groups", value: visible(joined), placeholder: "$ops, readers" });
  const reset = password("u-password");
  const send = (done, fields) => (event) => {
    event.preventDefault();
    attempt(done, () => change("user", { login, ...fields() }).then(reload));
  };
  show(login,
    el("p", {}, el("span", { class: known.isDisabled ? "tag" : "tag good" }, known.isDisabled ? "disabled" : "enabled")),
    el("div", { class: "row" }, known.isDisabled ? act("Enable", "enable", login) : act("Disable", "disable", login),
      confirmed("Delete the user", `Delete ${login}`, () => attempt("Deleted.", async () => {
        await change("user", { do: "delete", login });
        location.hash = "#/users";
      }))),
    el("h2", {}, "Name and groups"),
    el("form", { class: "form", onsubmit: send("Changed.", () => ({ do: "update", fullName: valueOf(fullName, known.fullName), groups: groupList(valueOf(groups, joined)) })) },
      field("u-name", "Full name", fullName), field("u-groups", "Groups", groups), el("div", { class: "row" }, el("button", { class: "main" }, "Change"))),
    el("h2", {}, "Password"),
    el("form", { class: "form", onsubmit: send("The password is set.", () => ({ do: "reset-password", password: reset.value })) },
      nameFor(login), field("u-password", "New password", reset), el("div", { class: "row" }, el("button", { class: "main" }, "Reset"))));
}

// The caller's own password.
export async function account() {
  if (!server.user) return show("Account", el("p", { class: "soft" }, "This server authenticates no users (--insecure)."));
  const current = el("input", { type: "password", id: "p-current", required: true, autocomplete: "current-password" });
  const [next, again] = [password("p-next"), password("p-again")];
  const problem = el("p", { class: "bad", role: "alert" });
  show(server.user,
    el("form", {
      class: "form",
      onsubmit: async (event) => {
        event.preventDefault();
        put(problem, next.value === again.value ? null : "The new passwords differ.");
        if (next.value !== again.value) return;
        const fields = { currentPassword: current.value, password: next.value };
        if (await attempt(null, () => change("password", fields))) say("Changed. The browser asks for the new password.");
      },
    },
    nameFor(server.user), field("p-current", "Current password", current), field("p-next", "New password", next), field("p-again", "New password again", again),
    problem, el("div", { class: "row" }, el("button", { class: "main" }, "Change"))));
}
