//! Arguments of `user`.

use clap::{Args, Subcommand};

use crate::events::client::password_source::NewPasswordArgs;
use crate::events::event_args::ServerArgs;

/// Commands of `user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// List all users, or show one; users who are no administrators may show themselves
    List(ListArgs),
    /// Add a user
    Add(AddArgs),
    /// Change the full name and the groups of a user
    Update(UpdateArgs),
    /// Change a password: your own, or as administrator that of any user
    Passwd(PasswdArgs),
    /// Enable a disabled user
    Enable(NamedArgs),
    /// Disable a user: the server refuses the user's credentials
    Disable(NamedArgs),
    /// Delete a user
    Delete(NamedArgs),
}

/// Arguments of `user list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Name of one user [default: all users]
    #[arg(value_name = "USER")]
    pub login: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `user add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Name with which the user logs in
    #[arg(value_name = "USER")]
    pub login: String,
    /// Name for people [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub full_name: Option<String>,
    /// Group of the user, such as $ops or $admins; can be given several times
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    #[command(flatten)]
    pub password: NewPasswordArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `user update`.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Name of the user
    #[arg(value_name = "USER")]
    pub login: String,
    /// Name for people [default: unchanged]
    #[arg(long, value_name = "NAME", required_unless_present_any = ["groups", "no_groups"])]
    pub full_name: Option<String>,
    /// Group of the user; the given groups replace all groups; can be given several times
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// Remove the user from all groups
    #[arg(long, conflicts_with = "groups")]
    pub no_groups: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `user passwd`.
#[derive(Debug, Args)]
pub struct PasswdArgs {
    /// Name of the user [default: the user of --connect]
    #[arg(value_name = "USER")]
    pub login: Option<String>,
    #[command(flatten)]
    pub password: NewPasswordArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of commands that need only the name of a user.
#[derive(Debug, Args)]
pub struct NamedArgs {
    /// Name of the user
    #[arg(value_name = "USER")]
    pub login: String,
    #[command(flatten)]
    pub server: ServerArgs,
}
