//! Users: created, changed, disabled and deleted; and their authentication.

use std::collections::BTreeMap;

use futures_util::stream;
use tonic::{Code, Status};
use umbel_proto::users::{
    ChangePasswordOptions, ChangePasswordReq, DetailsResp, Login, LoginReq, ResetPasswordOptions,
    ResetPasswordReq, SERVICE, UserDetails, UserOptions, UserReq,
};

use super::CallRun;
use crate::server::calls::call_server::{
    DENIED, ExpectedEnd, FIRST_PASSWORD, UNKNOWN, WRONG, as_user, one_of,
};
use umbel_testing::server_connection::Connection;

const LOGINS: [&str; 3] = ["ada", "bob", "eve"];
const PASSWORDS: [&str; 3] = ["one", "two", "three"];
const NOT_FOUND: ExpectedEnd = ExpectedEnd::Named(Code::NotFound, "user-not-found");
const CONFLICT: ExpectedEnd = ExpectedEnd::Named(Code::FailedPrecondition, "user-conflict");

/// Expected state of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UserState {
    password: String,
    full_name: String,
    groups: Vec<String>,
    is_disabled: bool,
}

/// The users by their names.
#[derive(Debug)]
pub struct UserStates(BTreeMap<String, UserState>);

/// Identity of a caller, as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CallerIdentity {
    /// Anonymous.
    Anonymous,
    /// Wrong credentials.
    Unknown,
    /// A user; the flag says whether the user is an administrator.
    User(String, bool),
}

impl Default for UserStates {
    fn default() -> UserStates {
        let first = [("$admins", "Event Store Administrator"), ("$ops", "Event Store Operations")];
        let person = |((login, password), (group, name)): ((&str, &str), (&str, &str))| {
            let person = UserState {
                password: password.to_string(),
                full_name: name.to_string(),
                groups: vec![group.to_string()],
                is_disabled: false,
            };
            (login.to_string(), person)
        };
        UserStates(FIRST_PASSWORD.into_iter().zip(first).map(person).collect())
    }
}

impl UserStates {
    fn caller(&self, login: &str, password: &str) -> CallerIdentity {
        match self.0.get(login) {
            Some(person) if person.password == password && !person.is_disabled => {
                let is_admin = person.groups.iter().any(|group| group == "$admins");
                CallerIdentity::User(login.to_string(), is_admin)
            }
            _ => CallerIdentity::Unknown,
        }
    }
}

/// Returns a caller: mostly the administrator, sometimes another user, perhaps with a wrong
/// password.
fn caller(run: &mut CallRun<'_>) -> (Connection, CallerIdentity) {
    let (login, password) = match run.random.below(8) {
        0 => return (run.client.clone(), CallerIdentity::Anonymous),
        1 => FIRST_PASSWORD[1],
        2 | 3 => {
            let login = one_of(&mut run.random, &LOGINS);
            (login, one_of(&mut run.random, &PASSWORDS))
        }
        _ => FIRST_PASSWORD[0],
    };
    (as_user(&run.client, login, password), run.people.caller(login, password))
}

/// Returns the expected error for a caller that is no administrator.
fn expected_for_non_admin(caller: &CallerIdentity) -> Option<ExpectedEnd> {
    match caller {
        CallerIdentity::Unknown => Some(UNKNOWN),
        CallerIdentity::Anonymous | CallerIdentity::User(_, false) => Some(DENIED),
        CallerIdentity::User(_, true) => None,
    }
}

/// Makes one call.
pub async fn call(run: &mut CallRun<'_>) -> Result<(), String> {
    run.tally.add("calls about users judged", 1);
    match run.random.below(9) {
        0 | 1 => create(run).await,
        2 => update(run).await,
        3 | 4 => change(run).await,
        5 => reset(run).await,
        6 => choose_password(run).await,
        7 => list(run).await,
        _ => check_login(run).await,
    }?;
    check_login(run).await
}

/// Returns options of a user, which may be invalid.
fn options(run: &mut CallRun<'_>) -> (UserOptions, bool) {
    let login = one_of(&mut run.random, &LOGINS).to_string();
    let groups = one_of(&mut run.random, &[None, Some("readers"), Some("$admins"), Some("$ops")]);
    let mut options = UserOptions {
        full_name: format!("{login} {}", run.random.below(1000)),
        login_name: login,
        password: one_of(&mut run.random, &PASSWORDS).to_string(),
        groups: groups.into_iter().map(str::to_string).collect(),
    };
    let flaw = run.random.below(24);
    match flaw {
        0 => options.login_name.clear(),
        1 => options.login_name = "$ada".to_string(),
        2 => options.login_name = "a:b".to_string(),
        3 => options.groups.push(String::new()),
        4 => options.full_name = "x".repeat(1025),
        5 => options.password = "x".repeat(1025),
        _ => {}
    }
    (options, flaw < 6)
}

async fn create(run: &mut CallRun<'_>) -> Result<(), String> {
    let (mut options, mut is_wrong) = options(run);
    if run.random.once_in(12) {
        options.password.clear();
        is_wrong = true;
    }
    let (client, identity) = caller(run);
    let is_there = run.people.0.contains_key(&options.login_name);
    let end = match expected_for_non_admin(&identity) {
        Some(end) => end,
        None if is_wrong => WRONG,
        None if is_there => CONFLICT,
        None => ExpectedEnd::Success,
    };
    let what = format!("{identity:?} makes {options:?}");
    let request = UserReq { options: Some(options.clone()) };
    end.check(&what, client.unary::<_, ()>(SERVICE, "Create", request).await)?;
    if end == ExpectedEnd::Success {
        let UserOptions { login_name, password, full_name, groups } = options;
        let person = UserState { password, full_name, groups, is_disabled: false };
        run.people.0.insert(login_name, person);
    }
    Ok(())
}

async fn update(run: &mut CallRun<'_>) -> Result<(), String> {
    let (mut options, is_wrong) = options(run);
    if run.random.once_in(2) && !is_wrong {
        options.password.clear();
    }
    let (client, identity) = caller(run);
    let end = match (expected_for_non_admin(&identity), run.people.0.get_mut(&options.login_name)) {
        (Some(end), _) => end,
        (None, _) if is_wrong => WRONG,
        (None, None) => NOT_FOUND,
        (None, Some(person)) => {
            person.full_name.clone_from(&options.full_name);
            person.groups.clone_from(&options.groups);
            if !options.password.is_empty() {
                person.password.clone_from(&options.password);
            }
            ExpectedEnd::Success
        }
    };
    let what = format!("{identity:?} changes {options:?}");
    let request = UserReq { options: Some(options) };
    end.check(&what, client.unary::<_, ()>(SERVICE, "Update", request).await).map(drop)
}

/// Disables, enables or deletes a user.
async fn change(run: &mut CallRun<'_>) -> Result<(), String> {
    let login = one_of(&mut run.random, &LOGINS);
    let method = one_of(&mut run.random, &["Disable", "Disable", "Enable", "Delete"]);
    let (client, identity) = caller(run);
    let options = Some(Login { login_name: login.to_string() });
    let options = options.filter(|_| !run.random.once_in(12));
    let end = match (expected_for_non_admin(&identity), &options, run.people.0.get_mut(login)) {
        (Some(end), ..) => end,
        (None, None, _) => WRONG,
        (None, _, None) => NOT_FOUND,
        (None, _, Some(person)) => {
            match method {
                "Disable" => person.is_disabled = true,
                "Enable" => person.is_disabled = false,
                _ => drop(run.people.0.remove(login)),
            }
            ExpectedEnd::Success
        }
    };
    let what = format!("{method} of {login} by {identity:?}");
    end.check(&what, client.unary::<_, ()>(SERVICE, method, LoginReq { options }).await).map(drop)
}

/// Returns a password that may be invalid.
fn new_password(run: &mut CallRun<'_>) -> (String, bool) {
    match run.random.below(12) {
        0 => (String::new(), true),
        1 => ("x".repeat(1025), true),
        _ => (one_of(&mut run.random, &PASSWORDS).to_string(), false),
    }
}

async fn reset(run: &mut CallRun<'_>) -> Result<(), String> {
    let login = one_of(&mut run.random, &LOGINS);
    let ((new, is_wrong), (client, identity)) = (new_password(run), caller(run));
    let end = match (expected_for_non_admin(&identity), run.people.0.get_mut(login)) {
        (Some(end), _) => end,
        (None, _) if is_wrong => WRONG,
        (None, None) => NOT_FOUND,
        (None, Some(person)) => {
            person.password.clone_from(&new);
            ExpectedEnd::Success
        }
    };
    let options = ResetPasswordOptions { login_name: login.to_string(), new_password: new };
    let request = ResetPasswordReq { options: Some(options) };
    let what = format!("a new password for {login} by {identity:?}");
    end.check(&what, client.unary::<_, ()>(SERVICE, "ResetPassword", request).await).map(drop)
}

async fn choose_password(run: &mut CallRun<'_>) -> Result<(), String> {
    let login = one_of(&mut run.random, &LOGINS);
    let current = one_of(&mut run.random, &PASSWORDS);
    let (new, is_wrong) = new_password(run);
    // Mostly as the user itself.
    let (client, identity) = match run.random.below(3) {
        0 => caller(run),
        _ => {
            let client = as_user(&run.client, login, current);
            (client, run.people.caller(login, current))
        }
    };
    let is_known = matches!(run.people.caller(login, current), CallerIdentity::User(..));
    let end = match &identity {
        CallerIdentity::Unknown => UNKNOWN,
        CallerIdentity::User(name, is_admin) if name == login || *is_admin => {
            match (is_known, is_wrong) {
                (false, _) => DENIED,
                (true, true) => WRONG,
                (true, false) => ExpectedEnd::Success,
            }
        }
        CallerIdentity::Anonymous | CallerIdentity::User(..) => DENIED,
    };
    if end == ExpectedEnd::Success
        && let Some(person) = run.people.0.get_mut(login)
    {
        person.password.clone_from(&new);
    }
    let options = ChangePasswordOptions {
        login_name: login.to_string(),
        current_password: current.to_string(),
        new_password: new,
    };
    let request = ChangePasswordReq { options: Some(options) };
    let what = format!("another password for {login}, instead of {current}, by {identity:?}");
    end.check(&what, client.unary::<_, ()>(SERVICE, "ChangePassword", request).await).map(drop)
}

async fn details(client: &Connection, login: &str) -> Result<Vec<UserDetails>, Status> {
    let options = Some(Login { login_name: login.to_string() });
    let request = stream::iter([LoginReq { options }]);
    let mut answers = client.streaming::<_, DetailsResp, _>(SERVICE, "Details", request).await?;
    let mut users = Vec::new();
    while let Some(answer) = answers.message().await? {
        users.extend(answer.user_details);
    }
    Ok(users)
}

fn matches_details(details: &UserDetails, login: &str, person: &UserState) -> bool {
    details.login_name == login
        && details.full_name == person.full_name
        && details.groups == person.groups
        && details.disabled == person.is_disabled
        && details.last_updated.is_some_and(|at| at.ticks_since_epoch > 0)
}

/// Lists all users.
async fn list(run: &mut CallRun<'_>) -> Result<(), String> {
    let (client, identity) = caller(run);
    let end = expected_for_non_admin(&identity).unwrap_or(ExpectedEnd::Success);
    let listed = end.check(&format!("{identity:?} lists all users"), details(&client, "").await)?;
    let Some(listed) = listed else { return Ok(()) };
    let people = &run.people.0;
    let is_right = listed.len() == people.len()
        && listed
            .iter()
            .zip(people)
            .all(|(listed, (login, person))| matches_details(listed, login, person));
    if is_right { Ok(()) } else { Err(format!("the users are {listed:?} and not {people:?}")) }
}

/// Checks the credentials of a caller by a call that requests a user's details, mostly the caller's
/// own.
async fn check_login(run: &mut CallRun<'_>) -> Result<(), String> {
    let login = one_of(&mut run.random, &LOGINS);
    let password = one_of(&mut run.random, &PASSWORDS);
    let identity = run.people.caller(login, password);
    let requested_login =
        if run.random.once_in(4) { one_of(&mut run.random, &LOGINS) } else { login };
    let person = run.people.0.get(requested_login).cloned();
    let end = match (&identity, &person) {
        (CallerIdentity::Unknown | CallerIdentity::Anonymous, _) => UNKNOWN,
        (CallerIdentity::User(name, is_admin), _) if name != requested_login && !is_admin => DENIED,
        (_, None) => NOT_FOUND,
        (_, Some(_)) => ExpectedEnd::Success,
    };
    let what = format!("{login} with the password {password} requests {requested_login}");
    let answer = details(&as_user(&run.client, login, password), requested_login).await;
    let listed = end.check(&what, answer)?;
    match (listed.as_deref(), &person) {
        (None, _) => Ok(()),
        (Some([listed]), Some(person)) if matches_details(listed, requested_login, person) => {
            Ok(())
        }
        (listed, person) => Err(format!("{what} and receives {listed:?} of {person:?}")),
    }
}
