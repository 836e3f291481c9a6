//! `umbel user`: users of a server and their passwords.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::serve::Serving;
use super::test_binary::{Fixture, Run};

const PASSWORDS: [(&str, &str); 2] =
    [("UMBEL_ADMIN_PASSWORD", "first"), ("UMBEL_OPS_PASSWORD", "second")];

/// A server with users, and a directory for files with passwords.
struct UserServer {
    fixture: Fixture,
    serving: Serving,
}

impl UserServer {
    fn start() -> UserServer {
        let fixture = Fixture::new();
        let serving = Serving::with(&fixture, &["--disable-tls"], &PASSWORDS);
        UserServer { fixture, serving }
    }

    /// Runs `umbel user` as a user with a password, and a new password in the environment.
    fn run(&self, (login, password): (&str, &str), new: &str, arguments: &[&str]) -> Run {
        let connect = format!("kurrentdb://{login}@{}?tls=false", self.serving.address());
        let mut command = self.fixture.command();
        command.arg("user").args(arguments).args(["--connect", &connect]);
        command.env("UMBEL_PASSWORD", password).env("UMBEL_NEW_PASSWORD", new);
        Run::of(&mut command)
    }

    /// The user as `umbel user list` prints it to that user.
    fn shown_to(&self, (login, password): (&str, &str)) -> Value {
        self.run((login, password), "", &["list", login, "--json"]).succeeds().json()
    }
}

const ADMIN: (&str, &str) = ("admin", "first");

#[test]
fn users_are_added_changed_and_deleted() {
    let server = UserServer::start();
    let add = ["add", "ada", "--full-name", "Ada L", "--group", "$ops", "--group", "readers"];
    server.run(ADMIN, "one", &add).writes("ada: added\n");
    let ada = server.shown_to(("ada", "one"));
    assert_eq!((&ada["user"], &ada["full_name"]), (&"ada".into(), &"Ada L".into()));
    assert_eq!(
        (&ada["groups"], &ada["disabled"]),
        (&serde_json::json!(["$ops", "readers"]), &false.into())
    );
    assert!(ada["changed"].as_str().unwrap().starts_with("20"), "{ada}");
    server.run(ADMIN, "", &["update", "ada", "--group", "readers"]).writes("ada: updated\n");
    let ada = server.shown_to(("ada", "one"));
    assert_eq!(
        (&ada["full_name"], &ada["groups"]),
        (&"Ada L".into(), &serde_json::json!(["readers"]))
    );
    server.run(ADMIN, "", &["update", "ada", "--full-name", "Ada", "--no-groups"]).succeeds();
    let listed = server.run(ADMIN, "", &["list"]).succeeds().text();
    let names: Vec<&str> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(names, ["ada", "admin", "ops"]);
    assert!(listed.starts_with("ada\tenabled\t-\tAda\n"), "{listed}");

    server.run(ADMIN, "", &["disable", "ada"]).writes("ada: disabled\n");
    server.run(("ada", "one"), "", &["list", "ada"]).fails(2, &["the server says"]);
    server.run(ADMIN, "", &["enable", "ada", "--json"]).succeeds();
    server.shown_to(("ada", "one"));
    server.run(ADMIN, "one", &["add", "ada"]).fails(2, &["the server says"]);
    server.run(ADMIN, "", &["delete", "ada"]).writes("ada: deleted\n");
    server.run(ADMIN, "", &["delete", "ada"]).fails(2, &["the server says"]);
    for denied in [&["list"][..], &["add", "eve"], &["delete", "admin"], &["passwd", "admin"]] {
        server.run(("ops", "second"), "x", denied).fails(2, &["the server says"]);
    }
    assert_eq!(server.serving.stop(Signal::INT).0, Some(0));
}

/// Regression: only the API of one client could change a password.
#[test]
fn operator_and_user_change_passwords() {
    let server = UserServer::start();
    // A user changes the own password; the old one is invalid after that.
    server.run(("ops", "second"), "third", &["passwd"]).writes("ops: has a new password\n");
    server.run(("ops", "second"), "x", &["passwd"]).fails(2, &["the server says"]);
    server.shown_to(("ops", "third"));
    // An administrator sets the password of another user, here from a file.
    let file = server.fixture.path("password");
    fs::write(&file, "from the file\nsecond line\n").unwrap();
    let named = ["passwd", "ops", "--password-file", file.to_str().unwrap()];
    server.run(ADMIN, "", &named).writes("ops: has a new password\n");
    server.shown_to(("ops", "from the file"));
    server.run(ADMIN, "next", &["passwd", "admin"]).succeeds();
    server.shown_to(("admin", "next"));
    // Without a source of a password nothing is changed.
    server
        .run(("admin", "next"), "", &["passwd"])
        .fails(2, &["--password-file", "UMBEL_NEW_PASSWORD"]);
    fs::write(&file, "\n").unwrap();
    server.run(("admin", "next"), "", &named).fails(2, &["is empty"]);
    server.shown_to(("ops", "from the file"));
    assert_eq!(server.serving.stop(Signal::INT).0, Some(0));
}

/// Without users the server needs no password, which is the remedy for a lost one.
#[test]
fn lost_password_is_replaced_on_a_server_without_users() {
    let fixture = Fixture::new();
    let serving = Serving::with(&fixture, &["--disable-tls"], &PASSWORDS);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    let serving = Serving::start(&fixture, &[]);
    let mut command = fixture.command();
    command.args(["user", "passwd", "admin", "--connect", serving.address()]);
    Run::of(command.env("UMBEL_NEW_PASSWORD", "found")).writes("admin: has a new password\n");
    fixture
        .bare(&["user", "passwd", "--connect", serving.address()])
        .fails(2, &["no user is named"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    let serving = Serving::with(&fixture, &["--disable-tls"], &[]);
    let server = UserServer { fixture, serving };
    server.shown_to(("admin", "found"));
    assert_eq!(server.serving.stop(Signal::INT).0, Some(0));
}
