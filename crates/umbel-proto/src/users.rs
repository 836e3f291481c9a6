//! `event_store.client.users`: users of a server and the passwords with which they
//! authenticate.

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.users.Users";

/// Request to create a user, or to change the name, groups or password of
/// an existing user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserReq {
    /// The user.
    #[prost(message, optional, tag = "1")]
    pub options: Option<UserOptions>,
}

/// Options of a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct UserOptions {
    /// Login name.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// Password.
    #[prost(string, tag = "2")]
    pub password: String,
    /// Full name.
    #[prost(string, tag = "3")]
    pub full_name: String,
    /// Groups of the user.
    #[prost(string, repeated, tag = "4")]
    pub groups: Vec<String>,
}

/// Request that deletes, enables, disables or describes one user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LoginReq {
    /// Selected user.
    #[prost(message, optional, tag = "1")]
    pub options: Option<Login>,
}

/// Selection of a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Login {
    /// Login name; an empty name selects all users where the request permits it.
    #[prost(string, tag = "1")]
    pub login_name: String,
}

/// One user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DetailsResp {
    /// Details of the user.
    #[prost(message, optional, tag = "1")]
    pub user_details: Option<UserDetails>,
}

/// Details of a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserDetails {
    /// Login name.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// Full name.
    #[prost(string, tag = "2")]
    pub full_name: String,
    /// Groups of the user.
    #[prost(string, repeated, tag = "3")]
    pub groups: Vec<String>,
    /// Time of the last change.
    #[prost(message, optional, tag = "4")]
    pub last_updated: Option<DateTime>,
    /// Whether the account is disabled.
    #[prost(bool, tag = "5")]
    pub disabled: bool,
}

/// Point in time.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DateTime {
    /// Ticks of 100 ns since 1970.
    #[prost(int64, tag = "1")]
    pub ticks_since_epoch: i64,
}

/// Request to change a password with the current one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChangePasswordReq {
    /// User and passwords.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ChangePasswordOptions>,
}

/// User, current and new password.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct ChangePasswordOptions {
    /// Login name.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// Current password.
    #[prost(string, tag = "2")]
    pub current_password: String,
    /// New password.
    #[prost(string, tag = "3")]
    pub new_password: String,
}

/// Request to reset a password without the current one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResetPasswordReq {
    /// User and new password.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ResetPasswordOptions>,
}

/// User and new password.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct ResetPasswordOptions {
    /// Login name.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// New password.
    #[prost(string, tag = "2")]
    pub new_password: String,
}

/// Prints only the login name of a message that contains passwords.
macro_rules! shows_no_password {
    ($($message:ident),*) => {$(
        impl std::fmt::Debug for $message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($message));
                shown.field("login_name", &self.login_name).finish_non_exhaustive()
            }
        }
    )*};
}

shows_no_password!(UserOptions, ChangePasswordOptions, ResetPasswordOptions);
