//! Calls about users. `call_policy` says which role each of these calls requires. This file adds
//! one rule: users may read their own details and change their own password.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_base::fail_point;
use umbel_env::Entropy;
use umbel_events::{Error, EventId, Store};
use umbel_proto::users::{
    ChangePasswordReq, DateTime, DetailsResp, LoginReq, ResetPasswordReq, UserDetails, UserReq,
};

use crate::access_control::passwords;
use crate::access_control::users::{self, ADMINS_GROUP, User};
use crate::auth::authorization::Caller;
use crate::auth::basic_authentication::BasicCredentials;
use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::request_body::RequestBody;
use crate::grpc::response_stream::{ResponseStream, stream_steps};
use crate::protocol::grpc_status;
use crate::resources::connection_registry::Connection;
use crate::server_context::ServerContext;
use crate::telemetry::failed_logins::LoginKind;

/// The requirement of calls about other users than the caller.
pub const OTHER_USERS: &str = "other users than the caller require a user in $admins";

type DetailsStream = Pin<Box<dyn Stream<Item = Result<DetailsResp, Status>> + Send>>;

/// Serves a call.
pub async fn call(
    service: Arc<ServerContext>,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.users.Users/") {
        Some("Create") => {
            let create = Handler::new(move |request| create(service, request));
            grpc_dispatch().unary(create, request).await
        }
        Some("Update") => {
            let update = Handler::new(move |request| update(service, request));
            grpc_dispatch().unary(update, request).await
        }
        Some("Delete") => handle_change(service, Change::Delete, request).await,
        Some("Disable") => handle_change(service, Change::Disable, request).await,
        Some("Enable") => handle_change(service, Change::Enable, request).await,
        Some("Details") => {
            let details = Handler::new(move |request| details(service, request));
            grpc_dispatch().server_streaming(details, request).await
        }
        Some("ChangePassword") => {
            let change = Handler::new(move |request| change_password(service, request));
            grpc_dispatch().unary(change, request).await
        }
        Some("ResetPassword") => {
            let reset = Handler::new(move |request| reset_password(service, request));
            grpc_dispatch().unary(reset, request).await
        }
        _ => grpc_status::unknown_method(path).into_http(),
    }
}

/// A change that needs only the user's name.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// Deletes the user.
    Delete,
    /// Disables the user.
    Disable,
    /// Enables the user.
    Enable,
}

async fn handle_change(
    service: Arc<ServerContext>,
    change: Change,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let change = Handler::new(move |request| change_user(service, change, request));
    grpc_dispatch().unary(change, request).await
}

/// Applies a change that needs only the user's name.
pub async fn change_user(
    service: Arc<ServerContext>,
    change: Change,
    request: Request<LoginReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let login = options.login_name.clone();
    let (done, name) = match change {
        Change::Delete => {
            let delete = |store: &Store, user: User, _| users::delete(store, &user);
            (with_user(&service, options.login_name, delete).await, "deleted")
        }
        Change::Disable | Change::Enable => {
            let is_disabled = matches!(change, Change::Disable);
            let set = move |store: &Store, mut user: User, id| {
                if user.is_disabled == is_disabled {
                    return Ok(());
                }
                user.is_disabled = is_disabled;
                users::update(store, &user, id)
            };
            let name = if is_disabled { "disabled" } else { "enabled" };
            (with_user(&service, options.login_name, set).await, name)
        }
    };
    done.inspect(|_| log_change(name, &login, &caller))
}

/// Logs a change of a user, with the user who made it.
fn log_change(change: &'static str, login: &str, caller: &Caller) {
    tracing::info!(user = login, by = caller.user_name(), "user {change}");
}

/// Creates a user.
pub async fn create(
    service: Arc<ServerContext>,
    request: Request<UserReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let mut user = User {
        login: options.login_name,
        full_name: options.full_name,
        groups: options.groups,
        is_disabled: false,
        password_hash: String::new(),
        changed_at: 0,
        revision: 0,
    };
    check_valid(user.validation_error())?;
    user.password_hash = hash_password(&service, options.password).await?;
    let login = user.login.clone();
    let rules = Arc::clone(service.authorizer.acl_cache());
    let created = service.store.blocking(move |store| {
        let created = users::create(store, &user);
        rules.invalidate(&users::user_stream(&user.login));
        created
    });
    match created.await {
        Ok(()) => {
            log_change("created", &login, &caller);
            Ok(Response::new(()))
        }
        Err(Error::WrongExpectedVersion { .. } | Error::StreamDeleted { .. }) => {
            Err(grpc_status::user_conflict(&login))
        }
        Err(error) => Err(grpc_status::status(&error)),
    }
}

/// Replaces the full name and the groups, and the password if given.
pub async fn update(
    service: Arc<ServerContext>,
    request: Request<UserReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let login = options.login_name.clone();
    let kept = match options.password.is_empty() {
        true => None,
        false => Some(hash_password(&service, options.password).await?),
    };
    let (full_name, groups) = (options.full_name, options.groups);
    let checked = User {
        login: options.login_name.clone(),
        full_name: full_name.clone(),
        groups: groups.clone(),
        is_disabled: false,
        password_hash: String::new(),
        changed_at: 0,
        revision: 0,
    };
    check_valid(checked.validation_error())?;
    let change = if kept.is_some() { "changed, with its password" } else { "changed" };
    let done = with_user(&service, options.login_name, move |store, mut user, id| {
        (user.full_name, user.groups) = (full_name, groups);
        user.password_hash = kept.unwrap_or(user.password_hash);
        users::update(store, &user, id)
    });
    done.await.inspect(|_| log_change(change, &login, &caller))
}

/// Changes the caller's own password, which requires the current one.
pub async fn change_password(
    service: Arc<ServerContext>,
    request: Request<ChangePasswordReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let peer = request.extensions().get::<Arc<Connection>>().cloned();
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    if !is_self_or_admin(&caller, &options.login_name) {
        return Err(grpc_status::access_denied(OTHER_USERS));
    }
    let login = options.login_name;
    let basic = BasicCredentials::new(&login, &options.current_password);
    check_current_password(&service, basic, peer.as_deref()).await?;
    let done = set_password(&service, login.clone(), options.new_password).await;
    done.inspect(|_| log_change("changed its password", &login, &caller))
}

/// Fails if the current password is wrong. A server without authentication skips this check.
///
/// REQUIRES: the caller is the user or an administrator. For others the error would be an oracle.
async fn check_current_password(
    service: &ServerContext,
    basic: BasicCredentials,
    peer: Option<&Connection>,
) -> Result<(), Status> {
    fail_point!("server-change-password-unverified", |_| Ok(()));
    if !service.authorizer.has_users() {
        return Ok(());
    }
    let login = basic.login().to_string();
    let login_peer = peer.map(Connection::login_peer);
    match service.authorizer.verify_password(&service.store, basic, login_peer).await {
        Err(status) if status.code() == tonic::Code::Unauthenticated => {
            let address = peer.and_then(Connection::address);
            service.failed_logins.record(LoginKind::PasswordChange, Some(&login), address);
            Err(grpc_status::wrong_current_password())
        }
        verified => verified.map(drop),
    }
}

/// Sets a new password without the old one.
pub async fn reset_password(
    service: Arc<ServerContext>,
    request: Request<ResetPasswordReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let login = options.login_name.clone();
    let done = set_password(&service, options.login_name, options.new_password).await;
    done.inspect(|_| log_change("got a new password", &login, &caller))
}

async fn set_password(
    service: &Arc<ServerContext>,
    login: String,
    password: String,
) -> Result<Response<()>, Status> {
    let kept = hash_password(service, password).await?;
    with_user(service, login, move |store, mut user, id| {
        user.password_hash = kept;
        users::update(store, &user, id)
    })
    .await
}

/// Details of one user, or of all without a name.
pub async fn details(
    service: Arc<ServerContext>,
    request: Request<LoginReq>,
) -> Result<Response<DetailsStream>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let login = request.into_inner().options.unwrap_or_default().login_name;
    if !is_self_or_admin(&caller, &login) {
        return Err(grpc_status::access_denied(OTHER_USERS));
    }
    if login.is_empty() {
        return Ok(Response::new(all_users(service)));
    }
    let name = login.clone();
    let found = service.store.blocking(move |store| users::read(store, &name)).await;
    match found.map_err(|error| grpc_status::status(&error))? {
        Some(user) => Ok(Response::new(Box::pin(stream::iter([Ok(details_response(user))])))),
        None => Err(grpc_status::user_not_found(&login)),
    }
}

fn all_users(service: Arc<ServerContext>) -> ResponseStream<DetailsResp> {
    stream_steps(
        (service, None),
        |(service, after): (Arc<ServerContext>, Option<String>)| async move {
            let listed = service.store.blocking(move |store| users::list(store, after.as_deref()));
            match listed.await {
                Ok((users, next)) => {
                    let answers =
                        users.into_iter().map(|user| Ok(details_response(user))).collect();
                    (answers, next.map(|next| (service, Some(next))))
                }
                Err(error) => (vec![Err(grpc_status::status(&error))], None),
            }
        },
    )
}

fn details_response(user: User) -> DetailsResp {
    let ticks_since_epoch = i64::try_from(user.changed_at).unwrap_or(i64::MAX);
    DetailsResp {
        user_details: Some(UserDetails {
            login_name: user.login,
            full_name: user.full_name,
            groups: user.groups,
            last_updated: Some(DateTime { ticks_since_epoch }),
            disabled: user.is_disabled,
        }),
    }
}

/// Whether the caller may read the details of this user; an empty name stands for all users.
pub fn is_self_or_admin(caller: &Caller, login: &str) -> bool {
    match caller {
        Caller::Trusted => true,
        Caller::Anonymous => false,
        Caller::User(user) => {
            user.value.as_ref().is_some_and(|user| user.login == login || user.is_in(ADMINS_GROUP))
        }
    }
}

/// Loads a user and applies a function to it.
async fn with_user(
    service: &Arc<ServerContext>,
    login: String,
    work: impl FnOnce(&Store, User, EventId) -> Result<(), Error> + Send + 'static,
) -> Result<Response<()>, Status> {
    let id = service.event_id()?;
    let (rules, name) = (Arc::clone(service.authorizer.acl_cache()), login.clone());
    let done = service.store.blocking(move |store| {
        let Some(user) = users::read(store, &name)? else { return Ok(None) };
        let done = work(store, user, id);
        rules.invalidate(&users::user_stream(&name));
        done.map(Some)
    });
    match done.await {
        Ok(Some(())) => Ok(Response::new(())),
        Ok(None) => Err(grpc_status::user_not_found(&login)),
        Err(Error::WrongExpectedVersion { .. }) => Err(grpc_status::user_conflict(&login)),
        Err(error) => Err(grpc_status::status(&error)),
    }
}

/// Hashes a password for storage.
async fn hash_password(service: &ServerContext, password: String) -> Result<String, Status> {
    passwords::check_length(&password)?;
    let entropy: Arc<dyn Entropy> = Arc::clone(&service.env.entropy);
    let threads = service.authorizer.password_threads();
    threads.run(move || passwords::hash_password(&password, &*entropy)).await?
}

fn check_valid(problem: Option<String>) -> Result<(), Status> {
    problem.map_or(Ok(()), |problem| Err(Status::invalid_argument(problem)))
}

fn missing_options() -> Status {
    Status::invalid_argument("the request has no options, so it names no user")
}
