//! Routes of `/users`, over the calls of clients.

use std::sync::Arc;

use futures_util::StreamExt;
use hyper::StatusCode;
use hyper::header::LOCATION;
use serde::Deserialize;
use serde_json::{Value, json};
use umbel_proto::users::{
    ChangePasswordOptions, ChangePasswordReq, Login, LoginReq, ResetPasswordOptions,
    ResetPasswordReq, UserDetails, UserOptions, UserReq,
};

use crate::access_control::users::{self, GROUPS_MAX};
use crate::http::api::api_request::{ApiRequest, encode_segment, parse_json};
use crate::http::api::api_response::{ApiError, ApiResult, json_response, set_header};
use crate::http::api::route_table::Operation;
use crate::limits::API_USERS_MAX;
use crate::protocol::bounded_list::BoundedList;
use crate::protocol::{grpc_status, proto_convert};
use crate::server_context::ServerContext;
use crate::services::user_service::{self, Change};

/// Body of a request that creates a user.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewUser {
    login_name: String,
    #[serde(default)]
    full_name: String,
    #[serde(default)]
    groups: BoundedList<GROUPS_MAX>,
    password: String,
}

/// Body of a request that updates a user.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UserUpdate {
    full_name: String,
    groups: BoundedList<GROUPS_MAX>,
    #[serde(default)]
    password: String,
}

/// Body of a request that sets a password.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PasswordReset {
    new_password: String,
}

/// Body of a request that changes a password.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PasswordChange {
    current_password: String,
    new_password: String,
}

/// Parses the bodies of all routes. For fuzzing and measurements.
pub fn check(bytes: &[u8]) {
    drop(parse_json::<NewUser>(bytes));
    drop(parse_json::<UserUpdate>(bytes));
    drop(parse_json::<PasswordReset>(bytes));
    drop(parse_json::<PasswordChange>(bytes));
}

/// Runs an operation of this page.
pub async fn run(
    service: &Arc<ServerContext>,
    operation: Operation,
    mut request: ApiRequest,
) -> ApiResult {
    let login = request.parameter(0).to_string();
    let change = match operation {
        Operation::ListUsers => return list(service, &request).await,
        Operation::CreateUser => return create(service, request).await,
        Operation::ReadUser => return read(service, &request, login).await,
        Operation::ReadCurrentUser => {
            let caller = request.caller();
            let Some(login) = caller.user_name() else {
                return Err(ApiError::not_found("the server runs without users"));
            };
            return read(service, &request, login.to_string()).await;
        }
        Operation::UpdateUser => return update(service, request, login).await,
        Operation::ResetPassword => {
            let PasswordReset { new_password } = request.json(service).await?;
            let options = Some(ResetPasswordOptions { login_name: login.clone(), new_password });
            let call = request.to_call(ResetPasswordReq { options });
            user_service::reset_password(Arc::clone(service), call).await?;
            return Ok(done(&login));
        }
        Operation::ChangePassword => {
            let PasswordChange { current_password, new_password } = request.json(service).await?;
            let login_name = login.clone();
            let options = ChangePasswordOptions { login_name, current_password, new_password };
            let call = request.to_call(ChangePasswordReq { options: Some(options) });
            user_service::change_password(Arc::clone(service), call).await?;
            return Ok(done(&login));
        }
        Operation::EnableUser => Change::Enable,
        Operation::DisableUser => Change::Disable,
        _ => Change::Delete,
    };
    let call = request.to_call(named(login.clone()));
    user_service::change_user(Arc::clone(service), change, call).await?;
    Ok(done(&login))
}

fn named(login_name: String) -> LoginReq {
    LoginReq { options: Some(Login { login_name }) }
}

fn done(login: &str) -> crate::http::api::api_response::HttpResponse {
    let value = json!({ "loginName": login, "success": true, "error": "Success" });
    json_response(StatusCode::OK, &value)
}

async fn list(service: &Arc<ServerContext>, request: &ApiRequest) -> ApiResult {
    if !user_service::is_self_or_admin(&request.caller(), "") {
        return Err(grpc_status::access_denied(user_service::OTHER_USERS).into());
    }
    let mut after = Some(request.query().text("after").to_string()).filter(|it| !it.is_empty());
    let mut found: Vec<Value> = Vec::new();
    let next = loop {
        let from = after.take();
        let listed = service.store.blocking(move |store| users::list(store, from.as_deref()));
        let (page, next) = listed.await.map_err(|error| grpc_status::status(&error))?;
        found.extend(page.into_iter().map(|user| {
            let details = UserFacts {
                login: &user.login,
                full_name: &user.full_name,
                groups: &user.groups,
                ticks: Some(user.changed_at),
                is_disabled: user.is_disabled,
            };
            details.to_json()
        }));
        if next.is_none() || found.len() >= API_USERS_MAX {
            break next;
        }
        after = next;
    };
    let value = json!({ "data": found, "next": next, "success": true, "error": "Success" });
    Ok(json_response(StatusCode::OK, &value))
}

/// A user as the API shows it.
struct UserFacts<'a> {
    login: &'a str,
    full_name: &'a str,
    groups: &'a [String],
    /// Time of the last change, in units of 100 ns since 1970.
    ticks: Option<u64>,
    is_disabled: bool,
}

impl UserFacts<'_> {
    fn to_json(&self) -> Value {
        let path = format!("/users/{}", encode_segment(self.login));
        let link =
            |end: &str, relation: &str| json!({ "href": format!("{path}{end}"), "rel": relation });
        let switch = match self.is_disabled {
            true => link("/command/enable", "enable"),
            false => link("/command/disable", "disable"),
        };
        let time = self.ticks.map(|ticks| proto_convert::to_timestamp(ticks / 10).to_string());
        json!({
            "loginName": self.login,
            "fullName": self.full_name,
            "groups": self.groups,
            "dateLastUpdated": time,
            "disabled": self.is_disabled,
            "links": [
                link("/command/reset-password", "reset-password"),
                link("/command/change-password", "change-password"),
                link("", "edit"),
                link("", "delete"),
                switch,
            ],
        })
    }
}

async fn read(service: &Arc<ServerContext>, request: &ApiRequest, login: String) -> ApiResult {
    let call = request.to_call(named(login.clone()));
    let answers = user_service::details(Arc::clone(service), call).await?;
    let answer = answers.into_inner().next().await.transpose()?;
    let Some(UserDetails { login_name, full_name, groups, last_updated, disabled }) =
        answer.and_then(|answer| answer.user_details)
    else {
        return Err(grpc_status::user_not_found(&login).into());
    };
    let ticks = last_updated.and_then(|time| u64::try_from(time.ticks_since_epoch).ok());
    let facts = UserFacts {
        login: &login_name,
        full_name: &full_name,
        groups: &groups,
        ticks,
        is_disabled: disabled,
    };
    let value = json!({ "data": facts.to_json(), "success": true, "error": "Success" });
    Ok(json_response(StatusCode::OK, &value))
}

async fn create(service: &Arc<ServerContext>, mut request: ApiRequest) -> ApiResult {
    let NewUser { login_name, full_name, groups, password } = request.json(service).await?;
    let login = login_name.clone();
    let options = UserOptions { login_name, password, full_name, groups: groups.0 };
    let call = request.to_call(UserReq { options: Some(options) });
    user_service::create(Arc::clone(service), call).await?;
    let mut response = done(&login);
    *response.status_mut() = StatusCode::CREATED;
    set_header(&mut response, LOCATION, &format!("/users/{}", encode_segment(&login)));
    Ok(response)
}

async fn update(service: &Arc<ServerContext>, mut request: ApiRequest, login: String) -> ApiResult {
    let UserUpdate { full_name, groups, password } = request.json(service).await?;
    let options = UserOptions { login_name: login.clone(), password, full_name, groups: groups.0 };
    let call = request.to_call(UserReq { options: Some(options) });
    user_service::update(Arc::clone(service), call).await?;
    Ok(done(&login))
}
