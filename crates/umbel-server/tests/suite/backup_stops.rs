//! Early ends of a backup into the server's backup directory: by the HTTP API, by the console, and
//! by the stop of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use umbel_env::Env;
use umbel_events::{CopyOptions, ExpectedVersion, NewEvent, verify_backup};
use umbel_server::Config;

use super::http_client::{HttpAnswer, authorization, send};
use super::test_server::{TestServer, with_users};

const JSON: &str = "content-type: application/json";
const CONSOLE: &str = "x-umbel-console: 1";
/// Time after which the stop of a server counts as waiting for the backup. The slow backup of these
/// tests pauses longer after each block.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// A server with a backup directory, and a caller.
struct BackupServer {
    server: TestServer,
    target: PathBuf,
    caller: Option<String>,
    _directory: TempDir,
}

impl BackupServer {
    /// Starts a server whose store has three blocks of events.
    fn start(config: Config, caller: Option<&str>) -> BackupServer {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("copy");
        let server = TestServer::with(Config { backup_directory: Some(target.clone()), ..config });
        let data = vec![b'x'; 1 << 20];
        for _ in 0..3 {
            let event = NewEvent::binary(server.store.new_id().unwrap(), "Happened", &data);
            server.store.append("cart", ExpectedVersion::Any, &[event]).unwrap();
        }
        let caller = caller.map(authorization);
        BackupServer { server, target, caller, _directory: directory }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Sends a request of the caller.
    fn send(&self, method: &str, path: &str, body: &Value) -> HttpAnswer {
        let mut headers = vec![JSON, CONSOLE];
        headers.extend(self.caller.as_deref());
        send(self.address(), method, path, &headers, body.to_string().as_bytes())
    }

    fn delete(&self, path: &str) -> HttpAnswer {
        self.send("DELETE", path, &json!({}))
    }

    fn read(&self, path: &str) -> Value {
        self.send("GET", path, &json!({})).is(200)
    }

    /// Starts a backup that pauses for 16 s after each block, and waits for its first block.
    /// Returns its id and its path.
    fn start_slow_backup(&self) -> (String, String) {
        let started = self.send("POST", "/admin/backup?bytesPerSecond=65536", &json!({})).is(202);
        let text = |name: &str| started[name].as_str().unwrap().to_string();
        let (id, path) = (text("backupId"), text("backupLink"));
        wait_for(|| Some(self.read(&path)).filter(|it| it["bytes"].as_u64() > Some(0)));
        (id, path)
    }

    /// Waits until the backup has this outcome, and returns it.
    fn wait_for_outcome(&self, path: &str, outcome: &str) -> Value {
        let ended =
            wait_for(|| Some(self.read(path)).filter(|it| it["backupResult"] != "InProgress"));
        assert_eq!(ended["backupResult"], outcome, "{ended}");
        ended
    }

    /// Backs up without a limit, and checks every byte of the backup.
    fn back_up(&self) -> String {
        let started = self.send("POST", "/admin/backup", &json!({})).is(202);
        let path = started["backupLink"].as_str().unwrap().to_string();
        self.wait_for_outcome(&path, "Success");
        let checked = verify_backup(&Env::system(), &self.target, CopyOptions::default()).unwrap();
        assert!(checked.damage.is_empty(), "{:?}", checked.damage);
        path
    }
}

/// Waits up to ten seconds for a value that the server changes in the background.
fn wait_for(mut found: impl FnMut() -> Option<Value>) -> Value {
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..500 {
        if let Some(value) = found() {
            return value;
        }
        let _ = never.recv_timeout(Duration::from_millis(20));
    }
    panic!("timeout");
}

/// Story: a running backup into a directory could not be stopped.
#[test]
fn backup_is_stopped_by_its_id_and_the_next_completes() {
    let mut server = BackupServer::start(Config::default(), None);
    assert_eq!(server.delete("/admin/backup/current").is(404)["error"], "NotFound");
    let read_current = || server.send("GET", "/admin/backup/current", &json!({}));
    assert_eq!(read_current().is(404)["message"], "no backup is running");
    let (id, path) = server.start_slow_backup();
    // Story: DELETE knew the id `current`, and GET did not.
    let current = read_current().is(200);
    assert_eq!((&current["backupId"], &current["backupLink"]), (&json!(id), &json!(path)));
    assert_eq!(current["backupResult"], "InProgress");
    let stopped = server.delete(&path).is(200);
    assert_eq!(stopped, json!({ "backupId": id, "backupLink": path }));
    // The backup may have ended meanwhile.
    let again = server.delete(&path).status;
    assert!(again == 200 || again == 409, "{again}");
    let ended = server.wait_for_outcome(&path, "Stopped");
    assert_eq!((&ended["error"], &ended["through"]), (&Value::Null, &Value::Null), "{ended}");
    assert_eq!(server.read("/admin/backup/last"), ended);
    assert_eq!(read_current().status, 404);
    let refused = server.delete(&path).is(409);
    assert_eq!(refused["message"], "the backup has already ended");
    for missing in ["/admin/backup/current", "/admin/backup/7", "/admin/backup/history"] {
        assert_eq!(server.delete(missing).is(404)["error"], "NotFound", "{missing}");
    }
    let shown = server.read("/console/api/overview")["backup"].take();
    assert_eq!((&shown["isStopped"], &shown["isRunning"]), (&true.into(), &false.into()));
    let history = server.read("/admin/backup/history")["backups"].take();
    assert_eq!(
        (&history[0]["backupResult"], &history[0]["error"]),
        (&"Stopped".into(), &Value::Null)
    );
    let unfinished = verify_backup(&Env::system(), &server.target, CopyOptions::default());
    assert!(unfinished.unwrap_err().to_string().contains("is not complete"));
    let complete = server.back_up();
    assert_eq!(server.delete(&complete).status, 409);
    let metrics = server.send("GET", "/metrics", &json!({}));
    for wanted in ["{outcome=\"Stopped\"} 1", "{outcome=\"Success\"} 1"] {
        let wanted = format!("umbel_backups_total{wanted}");
        assert!(metrics.text().contains(&wanted), "{wanted} is not in {}", metrics.text());
    }
    server.server.restart();
    assert_eq!(server.delete(&path).status, 409, "it is in the history");
}

/// Story: the stop of a server did not end its backup. The thread kept the directory locked, or
/// died with the process, and the next start knew no reason.
#[test]
fn stop_of_the_server_ends_a_backup_at_once() {
    let mut server = BackupServer::start(Config::default(), None);
    let (_, path) = server.start_slow_backup();
    let clock = Env::system().clock;
    let began = clock.now();
    server.server.restart();
    let took = clock.now().saturating_sub(began);
    assert!(took < STOP_TIME_MAX, "{took:?}");
    let ended = server.read(&path);
    assert_eq!(ended["backupResult"], "Interrupted", "{ended}");
    assert!(ended["error"].as_str().unwrap().starts_with("the server stopped"), "{ended}");
    // The directory is not locked.
    server.back_up();
}

/// Story: the alert on failed backups could not fire after a kill, because no server counted the
/// backup that the kill had ended.
#[test]
fn start_counts_the_work_that_a_kill_interrupted() {
    let mut server = TestServer::new();
    let started = json!({ "id": "7", "startedMicros": 7, "result": "InProgress" }).to_string();
    for (stream, kind) in [("$scavenges", "$scavengeStarted"), ("$umbel-backups", "$backupStarted")]
    {
        let id = server.store.new_id().unwrap();
        let event = NewEvent::json(id, kind, started.as_bytes());
        server.store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
    }
    // Only the start that closes the records counts them.
    for count in [1, 0] {
        server.restart();
        let address = server.address();
        let metrics = send(address, "GET", "/metrics", &[], b"");
        for kind in ["scavenge", "backup"] {
            let wanted = format!("umbel_{kind}s_total{{outcome=\"Interrupted\"}} {count}");
            assert!(metrics.text().contains(&wanted), "{wanted} is not in {}", metrics.text());
            let work = send(address, "GET", &format!("/admin/{kind}/7"), &[], b"").is(200);
            assert_eq!(work[format!("{kind}Result")], "Interrupted", "{work}");
        }
    }
}

#[test]
fn only_operators_stop_a_backup() {
    let mut server = BackupServer::start(with_users(), Some("admin:first"));
    let ada = json!({ "loginName": "ada", "password": "x" });
    server.send("POST", "/users", &ada).is(201);
    server.caller = Some(authorization("ops:second"));
    let (id, path) = server.start_slow_backup();
    let by_id = json!({ "id": id });
    for (caller, wanted) in [(None, 401), (Some(authorization("ada:x")), 403)] {
        server.caller = caller;
        for path in [&path[..], "/admin/backup/current"] {
            assert_eq!(server.delete(path).status, wanted, "{path}");
        }
        let answer = server.send("POST", "/console/api/stop-backup", &by_id);
        assert_eq!(answer.status, wanted, "{answer:?}");
    }
    server.caller = Some(authorization("ops:second"));
    assert_eq!(server.read(&path)["backupResult"], "InProgress");
    assert_eq!(server.delete("/admin/backup/current").is(200)["backupId"], id.as_str());
    server.wait_for_outcome(&path, "Stopped");
    let (id, path) = server.start_slow_backup();
    let shown = server.read("/console/api/work")["backup"].take();
    assert_eq!((&shown["id"], &shown["isRunning"]), (&json!(id), &true.into()));
    let stop = |id: &str| server.send("POST", "/console/api/stop-backup", &json!({ "id": id }));
    assert_eq!(stop("7").status, 404);
    assert_eq!(stop(&id).status, 200);
    server.wait_for_outcome(&path, "Stopped");
    assert_eq!(stop(&id).status, 409);
}
