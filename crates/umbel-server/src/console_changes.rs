//! What the console's pages change.

use std::sync::Arc;

use serde_json::{Value, json};
use tonic::{Request, Status};
use umbel_events::{Expected, NewEvent};
use umbel_proto::users::{
    Login, LoginReq, ResetPasswordOptions, ResetPasswordReq, UserOptions, UserReq,
};

use crate::access::Caller;
use crate::acl::Action;
use crate::group_key::{ALL, GroupKey};
use crate::scavenging::{Begun, ScavengeOptions};
use crate::service::Service;
use crate::{failure, persistent, user_calls};

/// What can be changed.
pub const NAMES: [&str; 6] = ["append", "replay", "scavenge", "stop-scavenge", "backup", "user"];

/// Changes something. Who asks may make such a call; whether he may with this stream is asked here.
pub async fn change(
    service: &Arc<Service>,
    caller: &Caller,
    name: &str,
    asked: &Value,
) -> Result<Value, Status> {
    match name {
        "append" => append(service, caller, asked).await,
        "replay" => replay(service, asked).await,
        "scavenge" => {
            let options = ScavengeOptions { threads: 1, first_chunk: 0 };
            Ok(match service.scavenging.start(options)? {
                Begun::Started(id) => json!({ "started": id }),
                Begun::InProgress(id) => json!({ "inProgress": id }),
            })
        }
        "stop-scavenge" => {
            service.scavenging.stop(text(asked, "id")?)?;
            Ok(json!({}))
        }
        "backup" => service.backups.start().map(|()| json!({})),
        _ => user(service, asked).await,
    }
}

fn text<'a>(asked: &'a Value, name: &str) -> Result<&'a str, Status> {
    let said = asked.get(name).and_then(Value::as_str);
    said.ok_or_else(|| Status::invalid_argument(format!("the request says no {name}")))
}

async fn append(service: &Arc<Service>, caller: &Caller, asked: &Value) -> Result<Value, Status> {
    let stream = text(asked, "stream")?.to_string();
    service.access.check(&service.store, caller, Action::Write, &stream).await?;
    let expected = match asked.get("expected").and_then(Value::as_str).unwrap_or("any") {
        "any" => Expected::Any,
        "none" => Expected::NoStream,
        "exists" => Expected::Exists,
        revision => Expected::Exact(revision.parse().map_err(|_| {
            Status::invalid_argument("expected is any, none, exists or a revision")
        })?),
    };
    let (kind, data) = (text(asked, "type")?.to_string(), text(asked, "data")?.to_string());
    let metadata = text(asked, "metadata").unwrap_or_default().to_string();
    let is_json = asked.get("isJson").and_then(Value::as_bool).unwrap_or(true);
    for (what, said) in [("data", &data), ("metadata", &metadata)] {
        let is_checked = is_json && !(what == "metadata" && said.is_empty());
        if is_checked && let Err(error) = serde_json::from_str::<Value>(said) {
            return Err(Status::invalid_argument(format!("the {what} is no JSON: {error}")));
        }
    }
    let id = service.event_id()?;
    let rules = Arc::clone(service.access.rules());
    let written = service.store.blocking(move |store| {
        let (data, metadata) = (data.as_bytes(), metadata.as_bytes());
        let event = NewEvent { id, kind: &kind, is_json, data, metadata };
        let done = store.append(&stream, expected, &[event]);
        rules.forget(&stream);
        done
    });
    let done = written.await.map_err(|error| failure::status(&error))?;
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    Ok(json!({ "revision": number(done.last), "position": number(done.position) }))
}

async fn replay(service: &Arc<Service>, asked: &Value) -> Result<Value, Status> {
    let source = text(asked, "source")?;
    let stream = (source != ALL).then(|| source.to_string());
    let key = GroupKey { stream, group: text(asked, "group")?.to_string() };
    persistent::replay_before(service, &key, u64::MAX).await?;
    Ok(json!({}))
}

/// Makes, changes, refuses or forgets a user.
async fn user(service: &Arc<Service>, asked: &Value) -> Result<Value, Status> {
    let (service, login) = (Arc::clone(service), text(asked, "login")?.to_string());
    let options = |asked: &Value| -> Result<UserReq, Status> {
        let groups = asked.get("groups").and_then(Value::as_array).cloned().unwrap_or_default();
        let groups = groups.iter().filter_map(|group| group.as_str().map(str::to_string));
        Ok(UserReq {
            options: Some(UserOptions {
                login_name: login.clone(),
                password: text(asked, "password").unwrap_or_default().to_string(),
                full_name: text(asked, "fullName").unwrap_or_default().to_string(),
                groups: groups.collect(),
            }),
        })
    };
    let named = || Request::new(LoginReq { options: Some(Login { login_name: login.clone() }) });
    let done = match text(asked, "do")? {
        "create" => user_calls::create(service, Request::new(options(asked)?)).await,
        "update" => user_calls::update(service, Request::new(options(asked)?)).await,
        "reset-password" => {
            let new_password = text(asked, "password")?.to_string();
            let options = Some(ResetPasswordOptions { login_name: login.clone(), new_password });
            user_calls::reset_password(service, Request::new(ResetPasswordReq { options })).await
        }
        "delete" => user_calls::change(service, user_calls::Change::Delete, named()).await,
        "disable" => user_calls::change(service, user_calls::Change::Disable, named()).await,
        "enable" => user_calls::change(service, user_calls::Change::Enable, named()).await,
        other => {
            return Err(Status::invalid_argument(format!("nobody can {other} a user")));
        }
    };
    done.map(|_| json!({}))
}
