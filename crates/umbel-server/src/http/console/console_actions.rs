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
    let said = optional(asked, name, "a text", Value::as_str)?;
    said.ok_or_else(|| Status::invalid_argument(format!("the request says no {name}")))
}

/// What is said under this name; nothing where that is missing, an error where it is of another
/// kind: what is left out without a word is not what was asked for.
fn optional<'a, T>(
    asked: &'a Value,
    name: &str,
    kind: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, Status> {
    let said = asked.get(name).filter(|said| !said.is_null());
    let wrong = || Status::invalid_argument(format!("{name} must be {kind}"));
    said.map(|said| read(said).ok_or_else(wrong)).transpose()
}

fn expected(said: &Value) -> Option<Expected> {
    match said {
        Value::String(text) => match &**text {
            "any" => Some(Expected::Any),
            "none" => Some(Expected::NoStream),
            "exists" => Some(Expected::Exists),
            revision => revision.parse().ok().map(Expected::Exact),
        },
        said => said.as_u64().map(Expected::Exact),
    }
}

fn texts(said: &Value) -> Option<Vec<String>> {
    said.as_array()?.iter().map(|one| one.as_str().map(str::to_string)).collect()
}

async fn append(service: &Arc<Service>, caller: &Caller, asked: &Value) -> Result<Value, Status> {
    let stream = text(asked, "stream")?.to_string();
    service.access.check(&service.store, caller, Action::Write, &stream).await?;
    let expected = optional(asked, "expected", "any, none, exists or a revision", expected)?;
    let expected = expected.unwrap_or(Expected::Any);
    let (kind, data) = (text(asked, "type")?.to_string(), text(asked, "data")?.to_string());
    let metadata = optional(asked, "metadata", "a text", Value::as_str)?.unwrap_or_default();
    let metadata = metadata.to_string();
    let is_json = optional(asked, "isJson", "true or false", Value::as_bool)?.unwrap_or(true);
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
        let said = |name| optional(asked, name, "a text", Value::as_str);
        Ok(UserReq {
            options: Some(UserOptions {
                login_name: login.clone(),
                password: said("password")?.unwrap_or_default().to_string(),
                full_name: said("fullName")?.unwrap_or_default().to_string(),
                groups: optional(asked, "groups", "a list of texts", texts)?.unwrap_or_default(),
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
