//! Users: made, changed, refused and forgotten; and who is let in afterwards.

use std::collections::BTreeMap;

use futures_util::stream;
use tonic::{Code, Status};
use umbel_proto::users::{
    ChangePasswordOptions, ChangePasswordReq, DetailsResp, Login, LoginReq, ResetPasswordOptions,
    ResetPasswordReq, SERVICE, UserDetails, UserOptions, UserReq,
};

use super::Run;
use super::world::{DENIED, End, FIRST, UNKNOWN, WRONG, as_user, one_of};
use crate::histories_server::connection::Connection;

const LOGINS: [&str; 3] = ["ada", "bob", "eve"];
const PASSWORDS: [&str; 3] = ["one", "two", "three"];
const NOT_FOUND: End = End::Named(Code::NotFound, "user-not-found");
const CONFLICT: End = End::Named(Code::FailedPrecondition, "user-conflict");

/// A user as he has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Person {
    password: String,
    full_name: String,
    groups: Vec<String>,
    is_disabled: bool,
}

/// The users by their names.
#[derive(Debug)]
pub struct People(BTreeMap<String, Person>);

/// Who somebody is, as far as the server finds out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Caller {
    /// He does not say.
    Nobody,
    /// Not the one he says he is.
    Unknown,
    /// A user, and whether he is an administrator.
    User(String, bool),
}

impl Default for People {
    fn default() -> People {
        let first = [("$admins", "Event Store Administrator"), ("$ops", "Event Store Operations")];
        let person = |((login, password), (group, name)): ((&str, &str), (&str, &str))| {
            let person = Person {
                password: password.to_string(),
                full_name: name.to_string(),
                groups: vec![group.to_string()],
                is_disabled: false,
            };
            (login.to_string(), person)
        };
        People(FIRST.into_iter().zip(first).map(person).collect())
    }
}

impl People {
    fn caller(&self, login: &str, password: &str) -> Caller {
        match self.0.get(login) {
            Some(person) if person.password == password && !person.is_disabled => {
                let is_admin = person.groups.iter().any(|group| group == "$admins");
                Caller::User(login.to_string(), is_admin)
            }
            _ => Caller::Unknown,
        }
    }
}

/// Who calls: mostly the administrator, sometimes somebody else, with a password that may be wrong.
fn caller(run: &mut Run<'_>) -> (Connection, Caller) {
    let (login, password) = match run.random.below(8) {
        0 => return (run.client.clone(), Caller::Nobody),
        1 => FIRST[1],
        2 | 3 => {
            let login = one_of(&mut run.random, &LOGINS);
            (login, one_of(&mut run.random, &PASSWORDS))
        }
        _ => FIRST[0],
    };
    (as_user(&run.client, login, password), run.people.caller(login, password))
}

/// What somebody is told who is no administrator.
fn admitted(caller: &Caller) -> Option<End> {
    match caller {
        Caller::Unknown => Some(UNKNOWN),
        Caller::Nobody | Caller::User(_, false) => Some(DENIED),
        Caller::User(_, true) => None,
    }
}

/// One call.
pub async fn call(run: &mut Run<'_>) -> Result<(), String> {
    run.tally.add("calls about users judged", 1);
    match run.random.below(9) {
        0 | 1 => create(run).await,
        2 => update(run).await,
        3 | 4 => change(run).await,
        5 => reset(run).await,
        6 => choose(run).await,
        7 => list(run).await,
        _ => look(run).await,
    }?;
    look(run).await
}

/// What a user is to be, which may be wrong.
fn options(run: &mut Run<'_>) -> (UserOptions, bool) {
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

async fn create(run: &mut Run<'_>) -> Result<(), String> {
    let (mut options, mut is_wrong) = options(run);
    if run.random.once_in(12) {
        options.password.clear();
        is_wrong = true;
    }
    let (client, who) = caller(run);
    let is_there = run.people.0.contains_key(&options.login_name);
    let end = match admitted(&who) {
        Some(end) => end,
        None if is_wrong => WRONG,
        None if is_there => CONFLICT,
        None => End::Well,
    };
    let what = format!("{who:?} makes {options:?}");
    let asked = UserReq { options: Some(options.clone()) };
    end.is(&what, client.unary::<_, ()>(SERVICE, "Create", asked).await)?;
    if end == End::Well {
        let UserOptions { login_name, password, full_name, groups } = options;
        let person = Person { password, full_name, groups, is_disabled: false };
        run.people.0.insert(login_name, person);
    }
    Ok(())
}

async fn update(run: &mut Run<'_>) -> Result<(), String> {
    let (mut options, is_wrong) = options(run);
    if run.random.once_in(2) && !is_wrong {
        options.password.clear();
    }
    let (client, who) = caller(run);
    let end = match (admitted(&who), run.people.0.get_mut(&options.login_name)) {
        (Some(end), _) => end,
        (None, _) if is_wrong => WRONG,
        (None, None) => NOT_FOUND,
        (None, Some(person)) => {
            person.full_name.clone_from(&options.full_name);
            person.groups.clone_from(&options.groups);
            if !options.password.is_empty() {
                person.password.clone_from(&options.password);
            }
            End::Well
        }
    };
    let what = format!("{who:?} changes {options:?}");
    let asked = UserReq { options: Some(options) };
    end.is(&what, client.unary::<_, ()>(SERVICE, "Update", asked).await).map(drop)
}

/// Disables, enables or deletes somebody.
async fn change(run: &mut Run<'_>) -> Result<(), String> {
    let login = one_of(&mut run.random, &LOGINS);
    let method = one_of(&mut run.random, &["Disable", "Disable", "Enable", "Delete"]);
    let (client, who) = caller(run);
    let options = Some(Login { login_name: login.to_string() });
    let options = options.filter(|_| !run.random.once_in(12));
    let end = match (admitted(&who), &options, run.people.0.get_mut(login)) {
        (Some(end), ..) => end,
        (None, None, _) => WRONG,
        (None, _, None) => NOT_FOUND,
        (None, _, Some(person)) => {
            match method {
                "Disable" => person.is_disabled = true,
                "Enable" => person.is_disabled = false,
                _ => drop(run.people.0.remove(login)),
            }
            End::Well
        }
    };
    let what = format!("{method} of {login} by {who:?}");
    end.is(&what, client.unary::<_, ()>(SERVICE, method, LoginReq { options }).await).map(drop)
}

/// A password that may be wrong.
fn new_password(run: &mut Run<'_>) -> (String, bool) {
    match run.random.below(12) {
        0 => (String::new(), true),
        1 => ("x".repeat(1025), true),
        _ => (one_of(&mut run.random, &PASSWORDS).to_string(), false),
    }
}

async fn reset(run: &mut Run<'_>) -> Result<(), String> {
    let login = one_of(&mut run.random, &LOGINS);
    let ((new, is_wrong), (client, who)) = (new_password(run), caller(run));
    let end = match (admitted(&who), run.people.0.get_mut(login)) {
        (Some(end), _) => end,
        (None, _) if is_wrong => WRONG,
        (None, None) => NOT_FOUND,
        (None, Some(person)) => {
            person.password.clone_from(&new);
            End::Well
        }
    };
    let options = ResetPasswordOptions { login_name: login.to_string(), new_password: new };
    let asked = ResetPasswordReq { options: Some(options) };
    let what = format!("a new password for {login} by {who:?}");
    end.is(&what, client.unary::<_, ()>(SERVICE, "ResetPassword", asked).await).map(drop)
}

async fn choose(run: &mut Run<'_>) -> Result<(), String> {
    let login = one_of(&mut run.random, &LOGINS);
    let current = one_of(&mut run.random, &PASSWORDS);
    let (new, is_wrong) = new_password(run);
    // Mostly by himself, as he says.
    let (client, who) = match run.random.below(3) {
        0 => caller(run),
        _ => {
            let client = as_user(&run.client, login, current);
            (client, run.people.caller(login, current))
        }
    };
    let is_known = matches!(run.people.caller(login, current), Caller::User(..));
    let end = match &who {
        Caller::Unknown => UNKNOWN,
        Caller::User(name, is_admin) if name == login || *is_admin => match (is_known, is_wrong) {
            (false, _) => DENIED,
            (true, true) => WRONG,
            (true, false) => End::Well,
        },
        Caller::Nobody | Caller::User(..) => DENIED,
    };
    if end == End::Well
        && let Some(person) = run.people.0.get_mut(login)
    {
        person.password.clone_from(&new);
    }
    let options = ChangePasswordOptions {
        login_name: login.to_string(),
        current_password: current.to_string(),
        new_password: new,
    };
    let asked = ChangePasswordReq { options: Some(options) };
    let what = format!("another password for {login}, whose is said to be {current}, by {who:?}");
    end.is(&what, client.unary::<_, ()>(SERVICE, "ChangePassword", asked).await).map(drop)
}

async fn details(client: &Connection, login: &str) -> Result<Vec<UserDetails>, Status> {
    let options = Some(Login { login_name: login.to_string() });
    let asked = stream::iter([LoginReq { options }]);
    let mut answers = client.streaming::<_, DetailsResp, _>(SERVICE, "Details", asked).await?;
    let mut told = Vec::new();
    while let Some(answer) = answers.message().await? {
        told.extend(answer.user_details);
    }
    Ok(told)
}

fn is_told(told: &UserDetails, login: &str, person: &Person) -> bool {
    told.login_name == login
        && told.full_name == person.full_name
        && told.groups == person.groups
        && told.disabled == person.is_disabled
        && told.last_updated.is_some_and(|at| at.ticks_since_epoch > 0)
}

/// Asks for everybody.
async fn list(run: &mut Run<'_>) -> Result<(), String> {
    let (client, who) = caller(run);
    let end = admitted(&who).unwrap_or(End::Well);
    let told = end.is(&format!("{who:?} asks for everybody"), details(&client, "").await)?;
    let Some(told) = told else { return Ok(()) };
    let people = &run.people.0;
    let is_right = told.len() == people.len()
        && told.iter().zip(people).all(|(told, (login, person))| is_told(told, login, person));
    if is_right { Ok(()) } else { Err(format!("the users are {told:?} and not {people:?}")) }
}

/// Somebody says who he is, and asks for somebody, mostly himself: whether he is let in.
async fn look(run: &mut Run<'_>) -> Result<(), String> {
    let said = one_of(&mut run.random, &LOGINS);
    let password = one_of(&mut run.random, &PASSWORDS);
    let who = run.people.caller(said, password);
    let asked = if run.random.once_in(4) { one_of(&mut run.random, &LOGINS) } else { said };
    let person = run.people.0.get(asked).cloned();
    let end = match (&who, &person) {
        (Caller::Unknown | Caller::Nobody, _) => UNKNOWN,
        (Caller::User(name, is_admin), _) if name != asked && !is_admin => DENIED,
        (_, None) => NOT_FOUND,
        (_, Some(_)) => End::Well,
    };
    let what = format!("{said} with the password {password} asks for {asked}");
    let answer = details(&as_user(&run.client, said, password), asked).await;
    let told = end.is(&what, answer)?;
    match (told.as_deref(), &person) {
        (None, _) => Ok(()),
        (Some([told]), Some(person)) if is_told(told, asked, person) => Ok(()),
        (told, person) => Err(format!("{what} and is told {told:?} of {person:?}")),
    }
}
