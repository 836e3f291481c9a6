//! Messages about users, under the field numbers of the protocol's table.

use umbel_proto::monitoring::{StatsReq, StatsResp};
use umbel_proto::users::{
    ChangePasswordOptions, ChangePasswordReq, DateTime, DetailsResp, Login, LoginReq,
    ResetPasswordOptions, ResetPasswordReq, UserDetails, UserOptions, UserReq,
};
use umbel_proto::v2::errors::{AccessDeniedErrorDetails, NodeInfo, NotLeaderNodeErrorDetails};

use super::wire_reader::check;

fn name() -> String {
    "a".to_string()
}

#[test]
fn users() {
    let options = UserOptions {
        login_name: name(),
        password: name(),
        full_name: name(),
        groups: vec![name()],
    };
    check(options.clone(), &[1, 2, 3, 4]);
    check(UserReq { options: Some(options) }, &[1]);
    let login = Login { login_name: name() };
    check(login.clone(), &[1]);
    check(LoginReq { options: Some(login) }, &[1]);
    let details = UserDetails {
        login_name: name(),
        full_name: name(),
        groups: vec![name()],
        last_updated: Some(DateTime { ticks_since_epoch: 1 }),
        disabled: true,
    };
    check(details.clone(), &[1, 2, 3, 4, 5]);
    check(DetailsResp { user_details: Some(details) }, &[1]);
    let change = ChangePasswordOptions {
        login_name: name(),
        current_password: name(),
        new_password: name(),
    };
    check(change.clone(), &[1, 2, 3]);
    check(ChangePasswordReq { options: Some(change) }, &[1]);
    let reset = ResetPasswordOptions { login_name: name(), new_password: name() };
    check(reset.clone(), &[1, 2]);
    check(ResetPasswordReq { options: Some(reset) }, &[1]);
}

#[test]
fn passwords_are_not_shown_by_debug() {
    let secret = || "correct horse".to_string();
    let options = UserOptions { password: secret(), login_name: name(), ..Default::default() };
    let change = ChangePasswordOptions {
        login_name: name(),
        current_password: secret(),
        new_password: secret(),
    };
    let reset = ResetPasswordOptions { login_name: name(), new_password: secret() };
    let request = UserReq { options: Some(options.clone()) };
    let shown = format!("{options:?} {change:?} {reset:?} {request:?}");
    assert!(!shown.contains("horse") && shown.contains("\"a\""), "{shown}");
}

#[test]
fn statistics_and_refusals() {
    check(StatsReq { use_metadata: true, refresh_time_period_in_ms: 5 }, &[1, 4]);
    check(StatsResp { stats: [(name(), name())].into() }, &[1]);
    let facts = AccessDeniedErrorDetails {
        operation: name(),
        username: Some(name()),
        permission: Some(name()),
    };
    check(facts, &[1, 2, 3]);
    let leader = NodeInfo { host: name(), port: 7, node_id: Some(name()) };
    check(NotLeaderNodeErrorDetails { current_leader: Some(leader) }, &[1]);
}
