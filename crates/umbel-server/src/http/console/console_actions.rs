//! Changes that the console's pages make.

use std::fmt;
use std::sync::Arc;

use hyper::body::Bytes;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, IgnoredAny, Visitor};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tonic::{Request, Status};
use umbel_events::{ExpectedVersion, JsonKeysError, read_json_keys};
use umbel_proto::users::{
    ChangePasswordOptions, ChangePasswordReq, Login, LoginReq, ResetPasswordOptions,
    ResetPasswordReq, UserOptions, UserReq,
};

use crate::access_control::acl::StreamAction;
use crate::auth::authorization::Caller;
use crate::event_store::append_command::{AppendCommand, StreamEvents};
use crate::event_store::auto_scavenge::AutoScavengeChange;
use crate::event_store::scavenging::{ScavengeOptions, ScavengeStart};
use crate::event_store::work_history::{StopReason, WorkOrigin};
use crate::http::console::group_settings::{self, CHANGE_GROUP};
use crate::http::console::redact::{self, REDACT};
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::protocol::grpc_status;
use crate::protocol::proto_convert::ProposedEvent;
use crate::resources::connection_registry::Connection;
use crate::server_context::ServerContext;
use crate::services::user_service::Change;
use crate::services::{persistent_subscriptions, user_service};

/// The console's actions.
pub const ACTIONS: [&str; 11] = [
    "append",
    "replay",
    "scavenge",
    "stop-scavenge",
    "backup",
    "stop-backup",
    AUTO_SCAVENGE,
    "user",
    PASSWORD,
    CHANGE_GROUP,
    REDACT,
];
/// Name of the action that changes the caller's own password.
const PASSWORD: &str = "password";
/// Name of the action that changes, pauses or resumes auto-scavenge.
const AUTO_SCAVENGE: &str = "auto-scavenge";

/// Runs an action. The caller's role was checked before; this function checks the caller's
/// permissions on the stream.
pub async fn run_action(
    service: &Arc<ServerContext>,
    (caller, peer): (&Caller, Option<Arc<Connection>>),
    name: &str,
    body: Bytes,
) -> Result<Value, Status> {
    match name {
        "append" => return append(service, caller, body).await,
        REDACT => return redact::redact(service, caller, body).await,
        AUTO_SCAVENGE => return auto_scavenge(service, caller, &body).await,
        CHANGE_GROUP => return group_settings::change_group(service, caller, body).await,
        _ => {}
    }
    let fields = &ActionFields::parse(&body)?;
    match name {
        "replay" => replay(service, caller, fields).await,
        PASSWORD => change_password(service, (caller, peer), fields).await,
        "scavenge" => {
            let removes_all = fields.optional("removeAll", "true or false")?.unwrap_or(false);
            let options = ScavengeOptions { removes_all, ..ScavengeOptions::default() };
            let origin = WorkOrigin::of_user(caller.user_name());
            Ok(match service.start_scavenge(options, origin).await? {
                ScavengeStart::Started(id) => json!({ "started": id }),
                ScavengeStart::InProgress(id) => json!({ "inProgress": id }),
            })
        }
        "stop-scavenge" => {
            service.scavenger.stop(&fields.text("id")?, StopReason::Requested)?;
            Ok(json!({}))
        }
        "backup" => {
            let origin = WorkOrigin::of_user(caller.user_name());
            service.start_backup(origin, None).map(|id| json!({ "started": id }))
        }
        "stop-backup" => {
            service.backups.stop(&fields.text("id")?, StopReason::Requested)?;
            Ok(json!({}))
        }
        _ => user(service, caller, fields).await,
    }
}

/// Request to change, pause or resume auto-scavenge.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AutoScavengeRequest {
    is_paused: Option<bool>,
    settings: Option<AutoScavengeChange>,
}

async fn auto_scavenge(
    service: &Arc<ServerContext>,
    caller: &Caller,
    body: &[u8],
) -> Result<Value, Status> {
    let wrong = |error| Status::invalid_argument(format!("the request is not valid: {error}"));
    let request: AutoScavengeRequest = serde_json::from_slice(body).map_err(wrong)?;
    let auto_scavenge = &service.auto_scavenge;
    if let Some(change) = request.settings {
        auto_scavenge.configure(&service.store, change, caller.user_name()).await?;
    }
    match request.is_paused {
        Some(true) => auto_scavenge.pause(&service.store, caller.user_name()).await?,
        Some(false) => auto_scavenge.resume(&service.store, caller.user_name()).await?,
        None => {}
    }
    Ok(json!({}))
}

/// The turn of the request whose text is read.
static PARSING: Semaphore = Semaphore::const_new(1);

/// Parses the request of an append. For measurements only.
pub fn parse_append(body: &[u8]) {
    drop(ConsoleAppend::parse(body));
}

/// Fields of the requests of all actions.
const FIELDS: [&str; 17] = [
    "stream",
    "expected",
    "type",
    "data",
    "metadata",
    "isJson",
    "source",
    "group",
    "id",
    "do",
    "login",
    "password",
    "fullName",
    "groups",
    "removeAll",
    "currentPassword",
    "before",
];

/// The known fields of a request, each as its JSON.
struct ActionFields<'a>([Option<&'a str>; FIELDS.len()]);

impl<'a> ActionFields<'a> {
    fn parse(body: &'a [u8]) -> Result<ActionFields<'a>, Status> {
        let fields = match read_json_keys(body, FIELDS) {
            Err(JsonKeysError::NotJson(error)) => {
                let why = format!("the request is not valid JSON: {error}");
                return Err(Status::invalid_argument(why));
            }
            // Other JSON has no fields.
            Err(JsonKeysError::NotAnObject) => [None; FIELDS.len()],
            Ok(fields) => fields,
        };
        Ok(ActionFields(fields))
    }

    /// The value of a field; `None` if the field is missing. A value of the wrong type is an error.
    fn optional<T: DeserializeOwned>(&self, name: &str, kind: &str) -> Result<Option<T>, Status> {
        let index = FIELDS.iter().position(|known| *known == name);
        let json = index.and_then(|index| self.0[index]).filter(|json| *json != "null");
        let wrong = |_| Status::invalid_argument(format!("{name} must be {kind}"));
        json.map(|json| serde_json::from_str(json).map_err(wrong)).transpose()
    }

    fn text(&self, name: &str) -> Result<String, Status> {
        let missing = || Status::invalid_argument(format!("the request has no {name}"));
        self.optional(name, "a string")?.ok_or_else(missing)
    }
}

/// An event that the console appends.
struct ConsoleAppend {
    stream: String,
    expected: ExpectedVersion,
    kind: String,
    data: String,
    metadata: String,
    is_json: bool,
}

impl ConsoleAppend {
    fn parse(body: &[u8]) -> Result<ConsoleAppend, Status> {
        let fields = ActionFields::parse(body)?;
        let kind = "any, none, exists or a revision";
        let expected: Option<Expected> = fields.optional("expected", kind)?;
        let append = ConsoleAppend {
            stream: fields.text("stream")?,
            expected: expected.map_or(ExpectedVersion::Any, |expected| expected.0),
            kind: fields.text("type")?,
            data: fields.text("data")?,
            metadata: fields.optional("metadata", "a string")?.unwrap_or_default(),
            is_json: fields.optional("isJson", "true or false")?.unwrap_or(true),
        };
        for (what, value) in [("data", &append.data), ("metadata", &append.metadata)] {
            let is_checked = append.is_json && !(what == "metadata" && value.is_empty());
            if is_checked && let Err(error) = serde_json::from_str::<IgnoredAny>(value) {
                let why = format!("the {what} is not valid JSON: {error}");
                return Err(Status::invalid_argument(why));
            }
        }
        Ok(append)
    }
}

/// An expected version: a word, or a revision as text or number.
struct Expected(ExpectedVersion);

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Expected, D::Error> {
        deserializer.deserialize_any(ExpectedVisitor).map(Expected)
    }
}

struct ExpectedVisitor;

impl Visitor<'_> for ExpectedVisitor {
    type Value = ExpectedVersion;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any, none, exists or a revision")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ExpectedVersion, E> {
        match text {
            "any" => Ok(ExpectedVersion::Any),
            "none" => Ok(ExpectedVersion::NoStream),
            "exists" => Ok(ExpectedVersion::Exists),
            revision => revision.parse().map(ExpectedVersion::Exact).map_err(E::custom),
        }
    }

    fn visit_u64<E: Error>(self, revision: u64) -> Result<ExpectedVersion, E> {
        Ok(ExpectedVersion::Exact(revision))
    }
}

async fn append(
    service: &Arc<ServerContext>,
    caller: &Caller,
    body: Bytes,
) -> Result<Value, Status> {
    // Reading a long text takes time, so it is done for one request at a time.
    let turn = PARSING.acquire().await;
    let parsing = tokio::task::spawn_blocking(move || {
        // If the client disconnects, the turn lasts until the text is read.
        let _turn = turn;
        ConsoleAppend::parse(&body)
    });
    let stopped = |_| grpc_status::shutting_down();
    let ConsoleAppend { stream, expected, kind, data, metadata, is_json } =
        parsing.await.map_err(stopped)??;
    service.authorizer.authorize(&service.store, caller, StreamAction::Write, &stream).await?;
    let id = service.event_id()?;
    let content = (data.into_bytes().into(), metadata.into_bytes().into());
    let events = vec![ProposedEvent::new(id, kind.into(), is_json, content)].into();
    let append = StreamEvents { stream, expected, events };
    let append = AppendCommand::to_stream(append, service.append_quota.new_share());
    let written = service.store.appends().submit(append).await;
    let written = written.map_err(umbel_events::Error::into_first_conflict);
    let done = written.map_err(|error| grpc_status::status(&error))?[0];
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    Ok(json!({ "revision": number(done.last), "position": number(done.position) }))
}

async fn replay(
    service: &Arc<ServerContext>,
    caller: &Caller,
    fields: &ActionFields<'_>,
) -> Result<Value, Status> {
    let stream = Some(fields.text("source")?).filter(|source| source != ALL_SOURCE);
    let key = GroupKey { stream, group: fields.text("group")? };
    // Revisions of the parked stream may be too long for a number of JavaScript.
    let before: Option<String> = fields.optional("before", "a string")?;
    let wrong = |_| Status::invalid_argument("before must be a revision of the parked stream");
    let before = before.map(|before| before.parse().map_err(wrong)).transpose()?;
    let before = before.unwrap_or(u64::MAX);
    persistent_subscriptions::replay_before(service, &key, before, caller).await?;
    Ok(json!({}))
}

/// Changes the caller's own password, which requires the current one.
async fn change_password(
    service: &Arc<ServerContext>,
    (caller, peer): (&Caller, Option<Arc<Connection>>),
    fields: &ActionFields<'_>,
) -> Result<Value, Status> {
    let Some(login) = caller.user_name() else {
        return Err(Status::failed_precondition(
            "this server authenticates no users; start it without --insecure",
        ));
    };
    let options = ChangePasswordOptions {
        login_name: login.to_string(),
        current_password: fields.text("currentPassword")?,
        new_password: fields.text("password")?,
    };
    let mut request = call_of(caller, ChangePasswordReq { options: Some(options) });
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    user_service::change_password(Arc::clone(service), request).await.map(|_| json!({}))
}

/// A call of this caller.
fn call_of<T>(caller: &Caller, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller.clone());
    request
}

/// Creates, updates, disables, enables or deletes a user, or resets its password.
async fn user(
    service: &Arc<ServerContext>,
    caller: &Caller,
    fields: &ActionFields<'_>,
) -> Result<Value, Status> {
    let (service, login) = (Arc::clone(service), fields.text("login")?);
    let options = |fields: &ActionFields<'_>| -> Result<UserReq, Status> {
        let value = |name| fields.optional::<String>(name, "a string");
        Ok(UserReq {
            options: Some(UserOptions {
                login_name: login.clone(),
                password: value("password")?.unwrap_or_default(),
                full_name: value("fullName")?.unwrap_or_default(),
                groups: fields.optional("groups", "a list of strings")?.unwrap_or_default(),
            }),
        })
    };
    let named = || LoginReq { options: Some(Login { login_name: login.clone() }) };
    let done = match &*fields.text("do")? {
        "create" => user_service::create(service, call_of(caller, options(fields)?)).await,
        "update" => user_service::update(service, call_of(caller, options(fields)?)).await,
        "reset-password" => {
            let new_password = fields.text("password")?;
            let options = Some(ResetPasswordOptions { login_name: login.clone(), new_password });
            let call = call_of(caller, ResetPasswordReq { options });
            user_service::reset_password(service, call).await
        }
        "delete" => {
            user_service::change_user(service, Change::Delete, call_of(caller, named())).await
        }
        "disable" => {
            user_service::change_user(service, Change::Disable, call_of(caller, named())).await
        }
        "enable" => {
            user_service::change_user(service, Change::Enable, call_of(caller, named())).await
        }
        other => {
            return Err(Status::invalid_argument(format!(
                "{other} is not an action on users; use create, update, reset-password, enable, \
                 disable or delete"
            )));
        }
    };
    done.map(|_| json!({}))
}
