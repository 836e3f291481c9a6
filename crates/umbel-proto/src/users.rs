//! `event_store.client.users`: users of a server and the passwords with which they
//! authenticate.

use crate::generated::event_store::client::users as package;

pub use package::change_password_req::Options as ChangePasswordOptions;
pub use package::create_req::Options as UserOptions;
pub use package::details_req::Options as Login;
pub use package::details_resp::UserDetails;
pub use package::details_resp::user_details::DateTime;
pub use package::reset_password_req::Options as ResetPasswordOptions;
pub use package::{
    ChangePasswordReq, CreateReq as UserReq, DetailsReq as LoginReq, DetailsResp, ResetPasswordReq,
};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.users.Users";

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
