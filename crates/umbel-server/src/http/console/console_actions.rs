//! Changes that the console's pages make.

use std::sync::Arc;

use serde_json::{Value, json};
use tonic::{Request, Status};
use umbel_events::{ExpectedVersion, NewEvent};
use umbel_proto::users::{
    Login, LoginReq, ResetPasswordOptions, ResetPasswordReq, UserOptions, UserReq,
};

use crate::access_control::acl::StreamAction;
use crate::auth::authorization::Caller;
use crate::event_store::scavenging::{ScavengeOptions, ScavengeStart};
use crate::http::console::redact::REDACT;
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::{persistent_subscriptions, user_service};

/// The console's actions.
pub const ACTIONS: [&str; 7] =
    ["append", "replay", "scavenge", "stop-scavenge", "backup", "user", REDACT];

/// Runs an action. The caller's role was checked before; this function checks the caller's
/// permissions on the stream.
pub async fn run_action(
    service: &Arc<ServerContext>,
    caller: &Caller,
    name: &str,
    fields: &Value,
) -> Result<Value, Status> {
    match name {
        "append" => append(service, caller, fields).await,
        "replay" => replay(service, fields).await,
        "scavenge" => {
            let removes_all = optional(fields, "removeAll", "true or false", Value::as_bool)?;
            let removes_all = removes_all.unwrap_or(false);
            let options = ScavengeOptions { threads: 1, first_chunk: 0, removes_all };
            Ok(match service.scavenger.start(options)? {
                ScavengeStart::Started(id) => json!({ "started": id }),
                ScavengeStart::InProgress(id) => json!({ "inProgress": id }),
            })
        }
        "stop-scavenge" => {
            service.scavenger.stop(text(fields, "id")?)?;
            Ok(json!({}))
        }
        "backup" => service.backups.start().map(|()| json!({})),
        _ => user(service, fields).await,
    }
}

fn text<'a>(fields: &'a Value, name: &str) -> Result<&'a str, Status> {
    let value = optional(fields, name, "a string", Value::as_str)?;
    value.ok_or_else(|| Status::invalid_argument(format!("the request has no {name}")))
}

/// The value of a JSON field; `None` if the field is missing. A value of the wrong type is an
/// error.
fn optional<'a, T>(
    fields: &'a Value,
    name: &str,
    kind: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, Status> {
    let value = fields.get(name).filter(|value| !value.is_null());
    let wrong = || Status::invalid_argument(format!("{name} must be {kind}"));
    value.map(|value| read(value).ok_or_else(wrong)).transpose()
}

fn expected(value: &Value) -> Option<ExpectedVersion> {
    match value {
        Value::String(text) => match &**text {
            "any" => Some(ExpectedVersion::Any),
            "none" => Some(ExpectedVersion::NoStream),
            "exists" => Some(ExpectedVersion::Exists),
            revision => revision.parse().ok().map(ExpectedVersion::Exact),
        },
        value => value.as_u64().map(ExpectedVersion::Exact),
    }
}

fn string_list(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|one| one.as_str().map(str::to_string)).collect()
}

async fn append(
    service: &Arc<ServerContext>,
    caller: &Caller,
    fields: &Value,
) -> Result<Value, Status> {
    let stream = text(fields, "stream")?.to_string();
    service.authorizer.authorize(&service.store, caller, StreamAction::Write, &stream).await?;
    let expected = optional(fields, "expected", "any, none, exists or a revision", expected)?;
    let expected = expected.unwrap_or(ExpectedVersion::Any);
    let (kind, data) = (text(fields, "type")?.to_string(), text(fields, "data")?.to_string());
    let metadata = optional(fields, "metadata", "a string", Value::as_str)?.unwrap_or_default();
    let metadata = metadata.to_string();
    let is_json = optional(fields, "isJson", "true or false", Value::as_bool)?.unwrap_or(true);
    for (what, value) in [("data", &data), ("metadata", &metadata)] {
        let is_checked = is_json && !(what == "metadata" && value.is_empty());
        if is_checked && let Err(error) = serde_json::from_str::<Value>(value) {
            return Err(Status::invalid_argument(format!("the {what} is not valid JSON: {error}")));
        }
    }
    let id = service.event_id()?;
    let rules = Arc::clone(service.authorizer.acl_cache());
    let written = service.store.blocking(move |store| {
        let (data, metadata) = (data.as_bytes(), metadata.as_bytes());
        let event = NewEvent { id, kind: &kind, is_json, data, metadata };
        let done = store.append(&stream, expected, &[event]);
        rules.invalidate(&stream);
        done
    });
    let done = written.await.map_err(|error| grpc_status::status(&error))?;
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    Ok(json!({ "revision": number(done.last), "position": number(done.position) }))
}

async fn replay(service: &Arc<ServerContext>, fields: &Value) -> Result<Value, Status> {
    let source = text(fields, "source")?;
    let stream = (source != ALL_SOURCE).then(|| source.to_string());
    let key = GroupKey { stream, group: text(fields, "group")?.to_string() };
    persistent_subscriptions::replay_before(service, &key, u64::MAX).await?;
    Ok(json!({}))
}

/// Creates, updates, disables, enables or deletes a user, or resets its password.
async fn user(service: &Arc<ServerContext>, fields: &Value) -> Result<Value, Status> {
    let (service, login) = (Arc::clone(service), text(fields, "login")?.to_string());
    let options = |fields: &Value| -> Result<UserReq, Status> {
        let value = |name| optional(fields, name, "a string", Value::as_str);
        Ok(UserReq {
            options: Some(UserOptions {
                login_name: login.clone(),
                password: value("password")?.unwrap_or_default().to_string(),
                full_name: value("fullName")?.unwrap_or_default().to_string(),
                groups: optional(fields, "groups", "a list of strings", string_list)?
                    .unwrap_or_default(),
            }),
        })
    };
    let named = || Request::new(LoginReq { options: Some(Login { login_name: login.clone() }) });
    let done = match text(fields, "do")? {
        "create" => user_service::create(service, Request::new(options(fields)?)).await,
        "update" => user_service::update(service, Request::new(options(fields)?)).await,
        "reset-password" => {
            let new_password = text(fields, "password")?.to_string();
            let options = Some(ResetPasswordOptions { login_name: login.clone(), new_password });
            user_service::reset_password(service, Request::new(ResetPasswordReq { options })).await
        }
        "delete" => user_service::change_user(service, user_service::Change::Delete, named()).await,
        "disable" => {
            user_service::change_user(service, user_service::Change::Disable, named()).await
        }
        "enable" => user_service::change_user(service, user_service::Change::Enable, named()).await,
        other => {
            return Err(Status::invalid_argument(format!(
                "{other} is not an action on users; use create, enable, disable or delete"
            )));
        }
    };
    done.map(|_| json!({}))
}
