//! Findings about the statistics of a server's store.

use std::path::Path;

use serde_json::Value;

use crate::events::client::connection_string::ConnectionString;
use crate::events::client::shell_command::{store_command, umbel_command};
use crate::events::doctor::finding::FindingState;
use crate::events::timestamps;
use crate::text::numbers::{bytes, counted};

/// Available bytes of a disk below which the server can soon append nothing: a chunk of the event
/// log with the index's work on it.
const DISK_BYTES_MIN: u64 = 64 << 20;
/// Divisor of the disk's size below which its space needs attention.
const DISK_SHARE_MIN: u64 = 10;
/// Divisors of the log's quota: below the first share, the remaining bytes need attention; below
/// the second one, appends are refused or soon will be.
const QUOTA_SHARE_MIN: u64 = 10;
const QUOTA_SHARE_FULL: u64 = 100;
/// Age of the events that a continuous backup lacks from which on it needs attention.
const BACKUP_SECONDS_MAX: u64 = 600;

/// Findings about the statistics of the store.
pub fn stats_states(
    stats: &Value,
    address: &ConnectionString,
) -> Vec<(&'static str, (FindingState, String))> {
    let findings = [
        ("store", Some(store_state(stats))),
        ("clock", Some(clock_state(stats))),
        ("disk", disk_state(stats)),
        ("quota", quota_state(stats, address)),
        ("replication", replication_state(stats, address)),
        ("filter", Some(filter_state(stats))),
        ("telemetry", telemetry_state(stats)),
        ("backup", backup_state(stats, "objectBackup")),
        ("kv backup", backup_state(stats, "kvObjectBackup")),
    ];
    findings.into_iter().filter_map(|(what, finding)| Some((what, finding?))).collect()
}

/// Directory of the store on the server's machine; `None` for an earlier server.
pub fn store_path(stats: &Value) -> Option<&Path> {
    stats["directory"]["path"].as_str().map(Path::new)
}

/// A command for the server's machine, on the directory of its store if that is known.
fn command_there(words: &[&str], directory: Option<&Path>) -> String {
    store_command(words, directory.unwrap_or(Path::new("DIR")))
}

fn store_state(stats: &Value) -> (FindingState, String) {
    let (store, index) = (&stats["store"], &stats["index"]);
    if let Some(reason) = index["readOnlyReason"].as_str() {
        return (FindingState::Wrong, format!("the store refuses appends: {reason}"));
    }
    for (member, what) in [("isRemoved", "removed"), ("isMoved", "moved or replaced")] {
        if stats["directory"][member] == true {
            let message = format!(
                "the store's directory was {what}; the server continues in the directory that it \
                 opened: put the directory back, or restart the server"
            );
            return (FindingState::Wrong, message);
        }
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let message = format!(
        "event log {} in {}; index memory {} of {}; {}",
        bytes(number(&store["logBytes"])),
        counted(number(&store["logChunks"]), "chunk"),
        bytes(number(&index["memoryBytes"])),
        bytes(number(&index["memoryBudgetBytes"])),
        counted(number(&index["stalls"]), "write stall"),
    );
    (FindingState::Fine, message)
}

/// Finding about the space for the event log; `None` if the server does not report it.
fn disk_state(stats: &Value) -> Option<(FindingState, String)> {
    let available = stats["disk"]["availableBytes"].as_u64()?;
    let total = stats["disk"]["totalBytes"].as_u64()?;
    let mut message = format!("{} of {} available", bytes(available), bytes(total));
    let state = match () {
        () if available < DISK_BYTES_MIN => {
            message.push_str(": appends fail or soon will; free space, or enlarge the disk");
            FindingState::Wrong
        }
        () if available < total / DISK_SHARE_MIN => FindingState::Doubtful,
        () => FindingState::Fine,
    };
    Some((state, message))
}

/// Finding about the quota of the event log; `None` without a quota.
fn quota_state(stats: &Value, address: &ConnectionString) -> Option<(FindingState, String)> {
    let quota = stats["store"]["logQuotaBytes"].as_u64()?;
    let used = stats["store"]["logBytes"].as_u64().unwrap_or_default();
    let mut message = format!("{} of {} of the event log used", bytes(used), bytes(quota));
    let state = match quota.saturating_sub(used) {
        left if left > quota / QUOTA_SHARE_MIN => return Some((FindingState::Fine, message)),
        // An append has at most a few mebibytes, but most are far shorter.
        left if left > quota / QUOTA_SHARE_FULL => FindingState::Doubtful,
        _ => FindingState::Wrong,
    };
    message.push_str(match state {
        FindingState::Wrong => ": appends fail or soon will",
        _ => "",
    });
    message.push_str("; delete or truncate streams and run ");
    message.push_str(&umbel_command(&["scavenge", "--now"], address));
    message.push_str("; or raise --log-quota of umbel serve");
    Some((state, message))
}

/// Finding about the errors for damaged data since the server started, or about the reason why
/// their number is unknown.
pub fn damage_state(
    errors: Result<u64, String>,
    directory: Option<&Path>,
) -> (FindingState, String) {
    match errors {
        Err(reason) => (FindingState::Unseen, reason),
        Ok(0) => {
            let message = "no error for damaged data since the server started";
            (FindingState::Fine, message.to_string())
        }
        Ok(errors) => {
            let message = format!(
                "{} for damaged data since the server started; the server's log names the files: \
                 run `{}` on the server's machine, then restore the store from a backup, or stop \
                 the server and save the readable events with `{}`",
                counted(errors, "error"),
                command_there(&["verify"], directory),
                command_there(&["repair"], directory)
            );
            (FindingState::Damaged, message)
        }
    }
}

fn clock_state(stats: &Value) -> (FindingState, String) {
    let store = &stats["store"];
    let Some(epoch) = store["clockEpoch"].as_u64() else {
        return (FindingState::Unseen, "the server does not report its clock".to_string());
    };
    let seconds = |name: &str| store[name].as_u64().unwrap_or_default();
    let (rejected, behind) = (seconds("clockRejectedSeconds"), seconds("clockBehindSeconds"));
    let remedy = || {
        format!(
            "correct the server's clock; if it is right, stop the server and run `{}` on its \
             machine, or start it once with --accept-clock",
            command_there(&["doctor", "--accept-clock"], store_path(stats))
        )
    };
    if rejected > 0 {
        let message = format!(
            "the server's clock is {rejected} s ahead of the time that the store believes, and \
             events get the earlier time or are refused: {}",
            remedy()
        );
        return (FindingState::Doubtful, message);
    }
    if behind > 0 {
        let message = format!(
            "the last event is {behind} s ahead of the server's clock, and later events get its \
             time: {}",
            remedy()
        );
        return (FindingState::Doubtful, message);
    }
    let start = store["clockEpochStartSeconds"].as_u64();
    let since = start.map_or_else(String::new, |start| {
        format!(", since {}", timestamps::rfc3339(start.saturating_mul(10_000_000)))
    });
    (FindingState::Fine, format!("the store believes the server's clock; epoch {epoch}{since}"))
}

fn filter_state(stats: &Value) -> (FindingState, String) {
    let filter = &stats["existenceFilter"];
    let number = |name: &str| filter[name].as_u64().unwrap_or_default();
    let (damaged, rebuilt) = (number("damagedLines"), number("healedLines"));
    let mut message = format!(
        "{}: {}, {} to rebuild",
        filter["state"].as_str().unwrap_or("unknown"),
        counted(number("items"), "stream"),
        counted(damaged, "damaged line")
    );
    if rebuilt > 0 {
        let rebuilt = counted(rebuilt, "damaged line");
        message.push_str(&format!(", {rebuilt} rebuilt since the server started"));
    }
    let journals = number("damagedJournals");
    if journals > 0 {
        message.push_str(&format!(", {} at the start", counted(journals, "damaged journal")));
    }
    if damaged + rebuilt + journals == 0 {
        return (FindingState::Fine, message);
    }
    message.push_str(": check the disk");
    (FindingState::Doubtful, message)
}

/// Finding about a node of a replicated log; `None` for a server that has its store alone.
fn replication_state(stats: &Value, address: &ConnectionString) -> Option<(FindingState, String)> {
    let node = stats.get("replication").filter(|node| node.is_object())?;
    let text = |name: &str| node[name].as_str().unwrap_or("unknown");
    let number = |name: &str| node[name].as_u64().unwrap_or_default();
    let (role, slot, behind) = (text("role"), number("slot"), number("slotsBehind"));
    let place = format!(
        "node {} is {role} in epoch {}, at slot {slot} of {}",
        text("node"),
        number("epoch"),
        text("store")
    );
    let leader = &node["leader"];
    let leader = leader["node"].as_str().map(|name| {
        let host = leader["host"].as_str().unwrap_or("unknown");
        format!("{name} at {host}:{}", leader["port"].as_u64().unwrap_or_default())
    });
    let state = match (role, node["failure"].as_str()) {
        (_, Some(failure)) => {
            let remedy = "check the object store, its credentials and the network";
            return Some((FindingState::Wrong, format!("{place}: {failure}; {remedy}")));
        }
        ("leader", None) => return Some((FindingState::Fine, place)),
        _ => node["isLeaderAlive"] == true,
    };
    let leader = leader.unwrap_or_else(|| "unknown".to_string());
    Some(match (state, behind) {
        (true, 0) => (FindingState::Fine, format!("{place}; the leader is {leader}")),
        (true, _) => {
            let slots = counted(behind, "slot");
            (FindingState::Doubtful, format!("{place}, {slots} behind the leader {leader}"))
        }
        (false, _) => {
            let promote = umbel_command(&["promote"], address);
            let message = format!(
                "{place}; the leader {leader} creates no slots: start it again, or make this node \
                 the leader with {promote}"
            );
            (FindingState::Doubtful, message)
        }
    })
}

/// Finding about the export to an OpenTelemetry collector; `None` if nothing is exported.
fn telemetry_state(stats: &Value) -> Option<(FindingState, String)> {
    let export = stats["openTelemetry"].as_object()?;
    let collector = export["collector"].as_str().unwrap_or("unknown");
    let dropped = export["droppedRecords"].as_u64().unwrap_or_default();
    let failing = export["failing"].as_array().map_or(&[][..], Vec::as_slice);
    let failing = failing.iter().map(|outage| {
        let text = |name: &str| outage[name].as_str().unwrap_or_default();
        let seconds = outage["seconds"].as_u64().unwrap_or_default();
        format!("{} for {seconds} s ({})", text("signal"), text("reason"))
    });
    let failing = failing.collect::<Vec<_>>().join(", ");
    let dropped = counted(dropped, "record");
    Some(match failing.is_empty() {
        true => (FindingState::Fine, format!("{collector} gets it; {dropped} dropped")),
        false => {
            let message = format!("{collector} does not accept {failing}; {dropped} dropped");
            (FindingState::Doubtful, message)
        }
    })
}

/// Finding about a continuous backup into an object store; `None` without one.
fn backup_state(stats: &Value, field: &str) -> Option<(FindingState, String)> {
    let backup = stats.get(field).filter(|backup| backup.is_object())?;
    let text = |name: &str| backup[name].as_str().unwrap_or("unknown");
    let (location, error) = (text("location"), text("error"));
    let seconds = backup["lagSeconds"].as_f64().unwrap_or_default() as u64;
    let is_behind = seconds > BACKUP_SECONDS_MAX;
    let lag = |field: &str| backup[field].as_u64();
    let lacks = match (lag("lagBytes"), lag("lagWrites")) {
        (Some(0), _) | (_, Some(0)) => String::from("lacks nothing yet"),
        (Some(lag), _) => format!("lacks {} of the last {seconds} s", bytes(lag)),
        (_, Some(lag)) => format!("lacks {} of the last {seconds} s", counted(lag, "write")),
        (None, None) => format!("was not reached for {seconds} s"),
    };
    let remedy = "; check the object store, its credentials and the network";
    Some(match text("state") {
        // The reason has the remedy.
        "Stopped" => (FindingState::Wrong, format!("stopped until a restart: {error}")),
        "Failing" if is_behind => {
            (FindingState::Wrong, format!("{location} {lacks}: {error}{remedy}"))
        }
        "Failing" => (FindingState::Doubtful, format!("{location} {lacks}: {error}{remedy}")),
        _ if is_behind => {
            let remedy = "raise --backup-throttle, or use a faster network or object store";
            (FindingState::Doubtful, format!("{location} {lacks}; {remedy}"))
        }
        _ => match backup_upkeep(backup) {
            Some(problem) => (FindingState::Doubtful, format!("{location}: {problem}")),
            None => {
                let time = text("lastSuccess");
                (FindingState::Fine, format!("{location} {lacks}; last success at {time}"))
            }
        },
    })
}

/// Returns what is wrong with the objects of a backup whose runs succeed.
fn backup_upkeep(backup: &Value) -> Option<String> {
    let lost = backup["lostObjects"].as_u64().unwrap_or(0);
    let failed =
        |field: &str, what: &str| backup[field].as_str().map(|error| format!("{what}: {error}"));
    let lost = (lost > 0).then(|| {
        format!(
            "{} had been deleted by something else; check the lifecycle rules of the bucket and \
             who can delete objects",
            counted(lost, "object")
        )
    });
    let problems = lost
        .into_iter()
        .chain(failed("retentionError", "expired states could not be deleted"))
        .chain(failed("searchError", "its objects could not be looked for"));
    let problems: Vec<String> = problems.collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_json(body: &[u8]) -> Value {
        serde_json::from_slice(body).unwrap_or_default()
    }

    #[test]
    fn statistics_map_to_finding_states() {
        let (state, message) =
            store_state(&parse_json(br#"{"index":{"readOnlyReason":"a failed sync"}}"#));
        assert!(state == FindingState::Wrong && message.contains("a failed sync"), "{message}");
        assert_eq!(store_state(&parse_json(b"{}")).0, FindingState::Fine);
        let (state, message) = store_state(&parse_json(br#"{"directory":{"isMoved":true}}"#));
        assert!(state == FindingState::Wrong && message.contains("was moved"), "{message}");
        let disk = |available: u64| {
            let disk = json!({ "availableBytes": available, "totalBytes": 3_u64 << 30 });
            disk_state(&json!({ "disk": disk })).unwrap()
        };
        // Story: on a full disk every check was fine.
        let (state, message) = disk(0);
        assert!(state == FindingState::Wrong && message.contains("appends fail"), "{message}");
        let little = (FindingState::Doubtful, "200.0 MiB of 3.0 GiB available".into());
        assert_eq!(disk(200 << 20), little);
        assert_eq!(disk(2 << 30).0, FindingState::Fine);
        assert!(disk_state(&json!({})).is_none(), "KurrentDB");
        let address = "kurrentdb://ops:x@db?tlsCaFile=ca.crt";
        let address = ConnectionString::parse("--connect", address).unwrap();
        let quota = |used: u64| {
            let store = json!({ "logBytes": used << 20, "logQuotaBytes": 1000_u64 << 20 });
            quota_state(&json!({ "store": store }), &address).unwrap()
        };
        assert_eq!(quota(800).0, FindingState::Fine);
        let (state, message) = quota(950);
        let tip = "scavenge --now --connect 'kurrentdb://ops@db:2113?tlsCaFile=ca.crt'; or raise";
        assert!(state == FindingState::Doubtful && message.contains(tip), "{message}");
        for used in [995, 1000, 1010] {
            let (state, message) = quota(used);
            assert!(state == FindingState::Wrong && message.contains("appends fail"), "{message}");
        }
        assert!(quota_state(&json!({ "store": { "logBytes": 5 } }), &address).is_none());
        let clock = |page: &str| clock_state(&parse_json(page.as_bytes()));
        assert_eq!(clock("{}").0, FindingState::Unseen, "KurrentDB");
        for fault in ["clockRejectedSeconds", "clockBehindSeconds"] {
            let page = format!(r#"{{"store":{{"clockEpoch":1,"{fault}":900}}}}"#);
            let (state, message) = clock(&page);
            assert!(state == FindingState::Doubtful && message.contains("900 s"), "{message}");
        }
        let (state, message) =
            clock(r#"{"store":{"clockEpoch":2,"clockEpochStartSeconds":86400}}"#);
        assert_eq!(state, FindingState::Fine);
        assert!(message.ends_with("epoch 2, since 1970-01-02T00:00:00.0000000Z"), "{message}");
        check_damage_findings();
        assert!(telemetry_state(&parse_json(b"{}")).is_none());
        let export = |failing: &str| {
            let page = format!(
                r#"{{"openTelemetry":{{"collector":"http://c:4318","droppedRecords":5,
                "failing":[{failing}]}}}}"#
            );
            telemetry_state(&parse_json(page.as_bytes())).unwrap()
        };
        assert_eq!(export("").0, FindingState::Fine);
        let (state, message) = export(r#"{"signal":"logs","reason":"no response","seconds":9}"#);
        let wanted = "http://c:4318 does not accept logs for 9 s (no response); 5 records dropped";
        assert_eq!((state, &message[..]), (FindingState::Doubtful, wanted));
        check_backup_findings();
        check_replication_findings();
    }

    /// Checks the findings about damage of the existence filter and of the store.
    fn check_damage_findings() {
        let page = parse_json(br#"{"existenceFilter":{"damagedLines":3,"healedLines":1}}"#);
        let (state, message) = filter_state(&page);
        assert!(state == FindingState::Doubtful && message.contains("3 damaged"), "{message}");
        // Story: lines that had been rebuilt hid damaged ones, and were fine themselves.
        let page = parse_json(br#"{"existenceFilter":{"damagedLines":0,"healedLines":8}}"#);
        let (state, message) = filter_state(&page);
        assert!(state == FindingState::Doubtful && message.contains("8 damaged"), "{message}");
        // Story: a damaged journal was fine.
        let page = parse_json(br#"{"existenceFilter":{"damagedJournals":1}}"#);
        let (state, message) = filter_state(&page);
        let said = "1 damaged journal at the start: check the disk";
        assert!(state == FindingState::Doubtful && message.ends_with(said), "{message}");
        assert_eq!(filter_state(&parse_json(b"no page")).0, FindingState::Fine);
        assert_eq!(damage_state(Err("no response".into()), None).0, FindingState::Unseen);
        assert_eq!(damage_state(Ok(0), None).0, FindingState::Fine);
        let page = json!({ "directory": { "path": "/my shop" } });
        let (state, message) = damage_state(Ok(1), store_path(&page));
        assert_eq!(state, FindingState::Damaged);
        // Story: the commands named no store, and were refused as they were printed.
        assert!(message.contains("`umbel verify --db '/my shop'`"), "{message}");
        assert!(message.contains("`umbel repair --db '/my shop'`"), "{message}");
    }

    /// Checks the findings about a node of a replicated log.
    fn check_replication_findings() {
        let address = ConnectionString::parse("--connect", "http://h:1").unwrap();
        let found = |role: &str, is_alive: bool, behind: u64, failure: Option<&str>| {
            let leader = json!({ "node": "a", "host": "h", "port": 2113 });
            let node = json!({
                "node": "b", "role": role, "epoch": 3, "slot": 9, "store": "s3://b/p",
                "leader": leader, "isLeaderAlive": is_alive, "slotsBehind": behind,
                "failure": failure,
            });
            replication_state(&json!({ "replication": node }), &address).unwrap()
        };
        assert!(replication_state(&json!({}), &address).is_none());
        let leads = "node b is leader in epoch 3, at slot 9 of s3://b/p";
        assert_eq!(found("leader", true, 0, None), (FindingState::Fine, leads.to_string()));
        let (state, message) = found("follower", true, 0, None);
        assert!(state == FindingState::Fine && message.ends_with("the leader is a at h:2113"));
        let (state, message) = found("follower", true, 7, None);
        assert!(state == FindingState::Doubtful && message.contains("7 slots behind"), "{message}");
        let (state, message) = found("follower", false, 0, None);
        let promote = "umbel promote --connect http://h:1";
        assert!(state == FindingState::Doubtful && message.ends_with(promote), "{message}");
        let (state, message) = found("leader", true, 0, Some("no answer"));
        assert!(state == FindingState::Wrong && message.contains("no answer; check"), "{message}");
    }

    /// Checks the findings about a continuous backup.
    fn check_backup_findings() {
        assert!(backup_state(&json!({}), "objectBackup").is_none());
        let found = |state: &str, lag_bytes: Option<u64>, seconds: f64| {
            let backup = json!({
                "location": "s3://b/p", "state": state, "lagBytes": lag_bytes,
                "lagSeconds": seconds, "error": "no answer", "lastSuccess": "today",
            });
            backup_state(&json!({ "objectBackup": backup }), "objectBackup").unwrap()
        };
        let fine = (FindingState::Fine, "s3://b/p lacks nothing yet; last success at today".into());
        assert_eq!(found("Running", Some(0), 0.0), fine);
        assert_eq!(found("Running", Some(5), 9.5).0, FindingState::Fine);
        let (state, message) = found("Running", Some(2048), 601.0);
        assert!(state == FindingState::Doubtful && message.contains("--backup-throttle"));
        assert!(message.contains("lacks 2.0 KiB of the last 601 s"), "{message}");
        let (state, message) = found("Failing", None, 30.0);
        assert!(state == FindingState::Doubtful && message.contains("not reached for 30 s"));
        assert!(message.contains("no answer; check the object store"), "{message}");
        assert_eq!(found("Failing", Some(1), 700.0).0, FindingState::Wrong);
        let (state, message) = found("Stopped", Some(0), 0.0);
        assert_eq!(
            (state, &message[..]),
            (FindingState::Wrong, "stopped until a restart: no answer")
        );
        let kv = json!({ "location": "l", "state": "Failing", "lagWrites": 3, "lagSeconds": 9.0 });
        let (_, message) = backup_state(&json!({ "kv": kv }), "kv").unwrap();
        assert!(message.starts_with("l lacks 3 writes of the last 9 s"), "{message}");
        let backup = json!({ "location": "l", "state": "Running", "retentionError": "no times" });
        let (state, message) =
            backup_state(&json!({ "objectBackup": backup }), "objectBackup").unwrap();
        assert!(state == FindingState::Doubtful && message.contains("no times"), "{message}");
        let backup = json!({ "location": "l", "state": "Running", "lostObjects": 2 });
        let (state, message) =
            backup_state(&json!({ "objectBackup": backup }), "objectBackup").unwrap();
        assert!(state == FindingState::Doubtful && message.contains("2 objects"), "{message}");
    }
}
