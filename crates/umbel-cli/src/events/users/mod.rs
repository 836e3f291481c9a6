//! `umbel user`: the users of a server, over the calls of its clients.

pub mod user_args;

use hyper::http::uri::PathAndQuery;
use serde_json::{Value, json};
use tonic::Request;
use tonic_prost::ProstCodec;
use umbel_proto::users::{
    ChangePasswordOptions, ChangePasswordReq, DetailsResp, Login, LoginReq, ResetPasswordOptions,
    ResetPasswordReq, UserDetails, UserOptions, UserReq,
};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection, status_error};
use crate::events::timestamps;
use crate::events::users::user_args::{
    AddArgs, ListArgs, NamedArgs, PasswdArgs, UpdateArgs, UserCommand,
};
use crate::io::output::Output;
use crate::text::escaping::escaped;

const DETAILS: &str = "/event_store.client.users.Users/Details";
const CREATE: &str = "/event_store.client.users.Users/Create";
const UPDATE: &str = "/event_store.client.users.Users/Update";
const CHANGE_PASSWORD: &str = "/event_store.client.users.Users/ChangePassword";
const RESET_PASSWORD: &str = "/event_store.client.users.Users/ResetPassword";
const ENABLE: &str = "/event_store.client.users.Users/Enable";
const DISABLE: &str = "/event_store.client.users.Users/Disable";
const DELETE: &str = "/event_store.client.users.Users/Delete";

/// Runs a command on the users of a server.
pub fn run(command: &UserCommand, json: bool) -> CommandResult<()> {
    match command {
        UserCommand::List(args) => list(args, json),
        UserCommand::Add(args) => add(args, json),
        UserCommand::Update(args) => update(args, json),
        UserCommand::Passwd(args) => change_password(args, json),
        UserCommand::Enable(args) => change(args, (ENABLE, "enabled"), json),
        UserCommand::Disable(args) => change(args, (DISABLE, "disabled"), json),
        UserCommand::Delete(args) => change(args, (DELETE, "deleted"), json),
    }
}

fn list(args: &ListArgs, json: bool) -> CommandResult<()> {
    let address = args.server.address()?;
    let login = args.login.clone().unwrap_or_default();
    let mut users = grpc_connection::runtime()?.block_on(details(&address, login))?;
    users.sort_unstable_by(|one, other| one.login_name.cmp(&other.login_name));
    let mut output = Output::new();
    for user in &users {
        match json {
            true => output.json(&to_json(user))?,
            false => output.line(&to_text(user))?,
        }
    }
    output.flush()
}

/// Reads the details of one user, or of all users if the name is empty.
async fn details(address: &ConnectionString, login: String) -> CommandResult<Vec<UserDetails>> {
    let request = Request::new(LoginReq { options: Some(Login { login_name: login }) });
    let mut calls = Connection::open(address).await?.grpc_client().await?;
    let codec = ProstCodec::<LoginReq, DetailsResp>::default();
    let path = PathAndQuery::from_static(DETAILS);
    let answers = calls.server_streaming(request, path, codec).await;
    let mut answers = answers.map_err(|status| status_error(&status))?.into_inner();
    let mut users = Vec::new();
    while let Some(answer) = answers.message().await.map_err(|status| status_error(&status))? {
        users.extend(answer.user_details);
    }
    Ok(users)
}

fn to_json(user: &UserDetails) -> Value {
    let changed = user.last_updated.as_ref().map(|time| time.ticks_since_epoch);
    json!({
        "user": user.login_name,
        "full_name": user.full_name,
        "groups": user.groups,
        "disabled": user.disabled,
        "changed": changed.and_then(|ticks| u64::try_from(ticks).ok()).map(timestamps::rfc3339),
    })
}

fn to_text(user: &UserDetails) -> String {
    let state = if user.disabled { "disabled" } else { "enabled" };
    let groups = match user.groups.is_empty() {
        true => "-".to_string(),
        false => user.groups.join(" "),
    };
    let [login, groups, name] =
        [&user.login_name, &groups, &user.full_name].map(|text| escaped(text.as_bytes()));
    format!("{login}\t{state}\t{groups}\t{name}")
}

fn add(args: &AddArgs, json: bool) -> CommandResult<()> {
    let address = args.server.address()?;
    let password = args.password.read(&args.login)?;
    let options = UserOptions {
        login_name: args.login.clone(),
        password,
        full_name: args.full_name.clone().unwrap_or_else(|| args.login.clone()),
        groups: args.groups.clone(),
    };
    call(&address, CREATE, UserReq { options: Some(options) })?;
    report(&args.login, "added", json)
}

/// Changes name and groups of a user. The call replaces both, so one that is not given is read
/// first.
fn update(args: &UpdateArgs, json: bool) -> CommandResult<()> {
    let address = args.server.address()?;
    let found = grpc_connection::runtime()?.block_on(details(&address, args.login.clone()))?;
    let Some(before) = found.into_iter().next() else {
        return Err(CommandError::usage(format!("there is no user {}", args.login)));
    };
    let is_same_groups = args.groups.is_empty() && !args.no_groups;
    let options = UserOptions {
        login_name: args.login.clone(),
        password: String::new(),
        full_name: args.full_name.clone().unwrap_or(before.full_name),
        groups: if is_same_groups { before.groups } else { args.groups.clone() },
    };
    call(&address, UPDATE, UserReq { options: Some(options) })?;
    report(&args.login, "updated", json)
}

/// Changes a password. Users prove their own current password; an administrator sets another
/// user's password without it.
fn change_password(args: &PasswdArgs, json: bool) -> CommandResult<()> {
    let address = args.server.address()?;
    let caller = address.user.as_ref();
    let login = args.login.clone().or_else(|| Some(caller?.0.clone())).ok_or_else(|| {
        CommandError::usage(
            "no user is named: write `umbel user passwd USER`, or the user in --connect \
             kurrentdb://USER@HOST:PORT",
        )
    })?;
    let new_password = args.password.read(&login)?;
    match caller.filter(|(caller, _)| *caller == login) {
        Some((_, current_password)) => {
            let options = ChangePasswordOptions {
                login_name: login.clone(),
                current_password: current_password.clone(),
                new_password,
            };
            call(&address, CHANGE_PASSWORD, ChangePasswordReq { options: Some(options) })?;
        }
        None => {
            let options = ResetPasswordOptions { login_name: login.clone(), new_password };
            call(&address, RESET_PASSWORD, ResetPasswordReq { options: Some(options) })?;
        }
    }
    report(&login, "has a new password", json)
}

fn change(args: &NamedArgs, (path, done): (&'static str, &str), json: bool) -> CommandResult<()> {
    let options = Some(Login { login_name: args.login.clone() });
    call(&args.server.address()?, path, LoginReq { options })?;
    report(&args.login, done, json)
}

/// Makes a call whose response is empty.
fn call<M: prost::Message + Default + 'static>(
    address: &ConnectionString,
    path: &'static str,
    message: M,
) -> CommandResult<()> {
    grpc_connection::runtime()?
        .block_on(async { Connection::open(address).await?.unary::<M, ()>(path, message).await })
}

fn report(login: &str, done: &str, json: bool) -> CommandResult<()> {
    let mut output = Output::new().after("the server has made the change");
    match json {
        true => output.json(&json!({ "user": login, "outcome": done }))?,
        false => output.line(&format!("{}: {done}", escaped(login.as_bytes())))?,
    }
    output.flush()
}
