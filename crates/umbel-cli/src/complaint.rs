//! What the command line parser complains of, as one sentence.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::errors::{Failure, Outcome};

/// Prints help and version where they were asked for; everything else is a [`Failure::Usage`].
pub fn answer(error: &Error) -> Outcome<()> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Ok(()) => Ok(()),
            Err(error) => Err(Failure::output(&error)),
        },
        _ => Err(Failure::usage(sentence(error))),
    }
}

fn sentence(error: &Error) -> String {
    let argument = text(error, ContextKind::InvalidArg);
    let value = text(error, ContextKind::InvalidValue);
    let complaint = match error.kind() {
        ErrorKind::UnknownArgument => format!("there is no flag or argument `{argument}` here"),
        ErrorKind::InvalidSubcommand => {
            format!("there is no command `{}`", text(error, ContextKind::InvalidSubcommand))
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("`{argument}` needs a value"),
        ErrorKind::InvalidValue => {
            let known = text(error, ContextKind::ValidValue);
            format!("`{value}` is no value for `{argument}`, which may be {known}")
        }
        ErrorKind::ValueValidation => {
            let reason = std::error::Error::source(error).map(ToString::to_string);
            format!("`{argument}` cannot be `{value}`: {}", reason.unwrap_or_default())
        }
        ErrorKind::MissingRequiredArgument => format!("{argument} is missing"),
        ErrorKind::ArgumentConflict => {
            let other = text(error, ContextKind::PriorArg);
            format!("`{argument}` and `{other}` do not go together")
        }
        _ => first_line(error),
    };
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand]
        .into_iter()
        .map(|kind| text(error, kind))
        .find(|suggested| !suggested.is_empty());
    match suggested {
        Some(suggested) => format!("{complaint}; did you mean `{suggested}`?"),
        None => format!("{complaint}; --help says what is"),
    }
}

/// A context as text; several values with commas between.
fn text(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_string()
}
