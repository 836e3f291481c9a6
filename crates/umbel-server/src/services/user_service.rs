//! The calls about users. Who may make which is said by `policy`; that somebody may look at himself
//! and change his own password, here.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_env::Entropy;
use umbel_events::{Error, EventId, Store};
use umbel_proto::users::{
    ChangePasswordReq, DetailsResp, LoginReq, Moment, ResetPasswordReq, UserDetails, UserReq,
};

use crate::access::Caller;
use crate::answers::{Answers, in_steps};
use crate::asked::Asked;
use crate::credentials::Basic;
use crate::failure;
use crate::handler::{Handler, grpc};
use crate::passwords;
use crate::service::Service;
use crate::users::{self, ADMINS, User};

type Details = Pin<Box<dyn Stream<Item = Result<DetailsResp, Status>> + Send>>;

/// Serves a call.
pub async fn call(service: Arc<Service>, request: hyper::Request<Asked>) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.users.Users/") {
        Some("Create") => {
            let create = Handler::new(move |asked| create(service, asked));
            grpc().unary(create, request).await
        }
        Some("Update") => {
            let update = Handler::new(move |asked| update(service, asked));
            grpc().unary(update, request).await
        }
        Some("Delete") => changing(service, Change::Delete, request).await,
        Some("Disable") => changing(service, Change::Disable, request).await,
        Some("Enable") => changing(service, Change::Enable, request).await,
        Some("Details") => {
            let details = Handler::new(move |asked| details(service, asked));
            grpc().server_streaming(details, request).await
        }
        Some("ChangePassword") => {
            let change = Handler::new(move |asked| change_password(service, asked));
            grpc().unary(change, request).await
        }
        Some("ResetPassword") => {
            let reset = Handler::new(move |asked| reset_password(service, asked));
            grpc().unary(reset, request).await
        }
        _ => failure::not_served(path).into_http(),
    }
}

/// What can be done with a user by his name alone.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// Forgets him.
    Delete,
    /// Refuses him from now on.
    Disable,
    /// Lets him in again.
    Enable,
}

async fn changing(
    service: Arc<Service>,
    change: Change,
    request: hyper::Request<Asked>,
) -> hyper::Response<Body> {
    let change = Handler::new(move |asked| self::change(service, change, asked));
    grpc().unary(change, request).await
}

/// Does something with a user by his name alone.
pub async fn change(
    service: Arc<Service>,
    change: Change,
    asked: Request<LoginReq>,
) -> Result<Response<()>, Status> {
    let options = asked.into_inner().options.ok_or_else(no_options)?;
    match change {
        Change::Delete => {
            let delete = |store: &Store, user: User, _| users::delete(store, &user);
            with_user(&service, options.login_name, delete).await
        }
        Change::Disable | Change::Enable => {
            let is_disabled = matches!(change, Change::Disable);
            with_user(&service, options.login_name, move |store, mut user, id| {
                if user.is_disabled == is_disabled {
                    return Ok(());
                }
                user.is_disabled = is_disabled;
                users::update(store, &user, id)
            })
            .await
        }
    }
}

/// Makes a user.
pub async fn create(
    service: Arc<Service>,
    request: Request<UserReq>,
) -> Result<Response<()>, Status> {
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let mut user = User {
        login: options.login_name,
        full_name: options.full_name,
        groups: options.groups,
        is_disabled: false,
        kept_password: String::new(),
        changed: 0,
        revision: 0,
    };
    refuse(user.complaint())?;
    user.kept_password = keep(&service, options.password).await?;
    let login = user.login.clone();
    let rules = Arc::clone(service.access.rules());
    let created = service.store.blocking(move |store| {
        let created = users::create(store, &user);
        rules.forget(&users::stream(&user.login));
        created
    });
    match created.await {
        Ok(()) => Ok(Response::new(())),
        Err(Error::WrongExpected { .. } | Error::Deleted { .. }) => {
            Err(failure::user_conflict(&login))
        }
        Err(error) => Err(failure::status(&error)),
    }
}

/// Another full name and other groups; another password where one is named.
pub async fn update(
    service: Arc<Service>,
    request: Request<UserReq>,
) -> Result<Response<()>, Status> {
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let kept = match options.password.is_empty() {
        true => None,
        false => Some(keep(&service, options.password).await?),
    };
    let (full_name, groups) = (options.full_name, options.groups);
    let checked = User {
        login: options.login_name.clone(),
        full_name: full_name.clone(),
        groups: groups.clone(),
        is_disabled: false,
        kept_password: String::new(),
        changed: 0,
        revision: 0,
    };
    refuse(checked.complaint())?;
    with_user(&service, options.login_name, move |store, mut user, id| {
        (user.full_name, user.groups) = (full_name, groups);
        user.kept_password = kept.unwrap_or(user.kept_password);
        users::update(store, &user, id)
    })
    .await
}

/// Who knows the password there is may choose another one, for himself.
async fn change_password(
    service: Arc<Service>,
    request: Request<ChangePasswordReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::of(request.extensions());
    let options = request.into_inner().options.ok_or_else(no_options)?;
    if !is_himself_or_admin(&caller, &options.login_name) {
        return Err(failure::access_denied());
    }
    let login = options.login_name;
    let basic = Basic::new(&login, &options.current_password);
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::ServerPasswordUnasked.is_on() {
        return set_password(&service, login, options.new_password).await;
    }
    // Where nobody is asked who he is, this is not asked either.
    if service.access.has_users()
        && let Err(status) = service.access.verify(&service.store, basic).await
    {
        let is_wrong = status.code() == tonic::Code::Unauthenticated;
        return Err(if is_wrong { failure::access_denied() } else { status });
    }
    set_password(&service, login, options.new_password).await
}

/// Another password, whatever the old one was.
pub async fn reset_password(
    service: Arc<Service>,
    request: Request<ResetPasswordReq>,
) -> Result<Response<()>, Status> {
    let options = request.into_inner().options.ok_or_else(no_options)?;
    set_password(&service, options.login_name, options.new_password).await
}

async fn set_password(
    service: &Arc<Service>,
    login: String,
    password: String,
) -> Result<Response<()>, Status> {
    let kept = keep(service, password).await?;
    with_user(service, login, move |store, mut user, id| {
        user.kept_password = kept;
        users::update(store, &user, id)
    })
    .await
}

/// One user, or all where none is named.
async fn details(
    service: Arc<Service>,
    request: Request<LoginReq>,
) -> Result<Response<Details>, Status> {
    let caller = Caller::of(request.extensions());
    let login = request.into_inner().options.unwrap_or_default().login_name;
    if !is_himself_or_admin(&caller, &login) {
        return Err(failure::access_denied());
    }
    if login.is_empty() {
        return Ok(Response::new(everybody(service)));
    }
    let name = login.clone();
    let found = service.store.blocking(move |store| users::read(store, &name)).await;
    match found.map_err(|error| failure::status(&error))? {
        Some(user) => Ok(Response::new(Box::pin(stream::iter([Ok(said(user))])))),
        None => Err(failure::user_not_found(&login)),
    }
}

fn everybody(service: Arc<Service>) -> Answers<DetailsResp> {
    in_steps((service, None), |(service, after): (Arc<Service>, Option<String>)| async move {
        let listed = service.store.blocking(move |store| users::list(store, after.as_deref()));
        match listed.await {
            Ok((users, next)) => {
                let answers = users.into_iter().map(|user| Ok(said(user))).collect();
                (answers, next.map(|next| (service, Some(next))))
            }
            Err(error) => (vec![Err(failure::status(&error))], None),
        }
    })
}

fn said(user: User) -> DetailsResp {
    let ticks_since_epoch = i64::try_from(user.changed).unwrap_or(i64::MAX);
    DetailsResp {
        user_details: Some(UserDetails {
            login_name: user.login,
            full_name: user.full_name,
            groups: user.groups,
            last_updated: Some(Moment { ticks_since_epoch }),
            disabled: user.is_disabled,
        }),
    }
}

fn is_himself_or_admin(caller: &Caller, login: &str) -> bool {
    match caller {
        Caller::Trusted => true,
        Caller::Nobody => false,
        Caller::User(user) => {
            user.value.as_ref().is_some_and(|user| user.login == login || user.is_in(ADMINS))
        }
    }
}

/// Does something with a user as he is.
async fn with_user(
    service: &Arc<Service>,
    login: String,
    work: impl FnOnce(&Store, User, EventId) -> Result<(), Error> + Send + 'static,
) -> Result<Response<()>, Status> {
    let id = service.event_id()?;
    let (rules, name) = (Arc::clone(service.access.rules()), login.clone());
    let done = service.store.blocking(move |store| {
        let Some(user) = users::read(store, &name)? else { return Ok(None) };
        let done = work(store, user, id);
        rules.forget(&users::stream(&name));
        done.map(Some)
    });
    match done.await {
        Ok(Some(())) => Ok(Response::new(())),
        Ok(None) => Err(failure::user_not_found(&login)),
        Err(Error::WrongExpected { .. }) => Err(failure::user_conflict(&login)),
        Err(error) => Err(failure::status(&error)),
    }
}

/// What is kept of a password.
async fn keep(service: &Service, password: String) -> Result<String, Status> {
    passwords::check(&password)?;
    let entropy: Arc<dyn Entropy> = Arc::clone(&service.env.entropy);
    let kept = tokio::task::spawn_blocking(move || passwords::keep(&password, &*entropy)).await;
    kept.unwrap_or_else(|_| Err(failure::stopping()))
}

fn refuse(complaint: Option<String>) -> Result<(), Status> {
    complaint.map_or(Ok(()), |complaint| Err(Status::invalid_argument(complaint)))
}

fn no_options() -> Status {
    Status::invalid_argument("the request has no options, so it names no user")
}
