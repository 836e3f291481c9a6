//! `event_store.client.users`: who may use a server, and the passwords by which they say who they
//! are.

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.users.Users";

/// Asks for a user who was not there, or for another name, other groups or another password of one
/// who is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserReq {
    /// The user.
    #[prost(message, optional, tag = "1")]
    pub options: Option<UserOptions>,
}

/// What a user is to be.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct UserOptions {
    /// The name by which he says who he is.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// His password.
    #[prost(string, tag = "2")]
    pub password: String,
    /// His name among people.
    #[prost(string, tag = "3")]
    pub full_name: String,
    /// The groups he is in.
    #[prost(string, repeated, tag = "4")]
    pub groups: Vec<String>,
}

/// Asks for something about one user: deletes, enables, disables or describes him.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LoginReq {
    /// Which one.
    #[prost(message, optional, tag = "1")]
    pub options: Option<Login>,
}

/// Which user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Login {
    /// The name by which he says who he is; empty for all, where that makes sense.
    #[prost(string, tag = "1")]
    pub login_name: String,
}

/// One user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DetailsResp {
    /// What there is to say of him.
    #[prost(message, optional, tag = "1")]
    pub user_details: Option<UserDetails>,
}

/// What there is to say of a user.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserDetails {
    /// The name by which he says who he is.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// His name among people.
    #[prost(string, tag = "2")]
    pub full_name: String,
    /// The groups he is in.
    #[prost(string, repeated, tag = "3")]
    pub groups: Vec<String>,
    /// When that was last changed.
    #[prost(message, optional, tag = "4")]
    pub last_updated: Option<Moment>,
    /// Whether he is refused.
    #[prost(bool, tag = "5")]
    pub disabled: bool,
}

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Moment {
    /// Ticks of 100 ns since 1970.
    #[prost(int64, tag = "1")]
    pub ticks_since_epoch: i64,
}

/// Asks for another password, by who knows the one there is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChangePasswordReq {
    /// Whose, and which.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ChangePasswordOptions>,
}

/// Whose password, and which.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct ChangePasswordOptions {
    /// Whose.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// The one there is.
    #[prost(string, tag = "2")]
    pub current_password: String,
    /// The one there is to be.
    #[prost(string, tag = "3")]
    pub new_password: String,
}

/// Asks for another password without knowing the one there is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResetPasswordReq {
    /// Whose, and which.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ResetPasswordOptions>,
}

/// Whose password, and which.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct ResetPasswordOptions {
    /// Whose.
    #[prost(string, tag = "1")]
    pub login_name: String,
    /// The one there is to be.
    #[prost(string, tag = "2")]
    pub new_password: String,
}

/// A message in which passwords come says whose, and nothing else, where it is shown.
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
