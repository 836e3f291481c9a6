//! Errors of the command line parser as one sentence.

use std::ffi::OsString;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::errors::{CommandError, CommandResult};
use crate::text::suggestion::nearest;

/// Prints help and version; every other error becomes a [`CommandError::Usage`].
pub fn handle_clap_error(error: &Error) -> CommandResult<()> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Ok(()) => Ok(()),
            Err(error) => Err(CommandError::output(&error)),
        },
        _ => Err(CommandError::usage(error_sentence(error))),
    }
}

/// Error as one sentence.
pub fn error_sentence(error: &Error) -> String {
    let argument = text(error, ContextKind::InvalidArg);
    let value = text(error, ContextKind::InvalidValue);
    let complaint = match error.kind() {
        ErrorKind::UnknownArgument => format!("unknown flag or argument `{argument}`"),
        ErrorKind::InvalidSubcommand => {
            format!("unknown command `{}`", text(error, ContextKind::InvalidSubcommand))
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("`{argument}` needs a value that is not empty")
        }
        ErrorKind::InvalidValue => {
            let known = text(error, ContextKind::ValidValue);
            format!("`{value}` is not a value of `{argument}`; possible values: {known}")
        }
        ErrorKind::ValueValidation => {
            return refused_value(&argument, &value, error);
        }
        ErrorKind::MissingRequiredArgument => format!("{argument} is missing"),
        ErrorKind::ArgumentConflict => {
            let other = text(error, ContextKind::PriorArg);
            if argument == other {
                return format!("`{argument}` is given twice; keep one");
            }
            format!("`{argument}` and `{other}` cannot be combined")
        }
        _ => first_line(error),
    };
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand]
        .into_iter()
        .map(|kind| text(error, kind))
        .find(|suggested| !suggested.is_empty());
    // The parser finds `--write` like `--listen`.
    let is_like = |suggested: &String| {
        argument.is_empty() || nearest(&argument, [&suggested[..]].into_iter()).is_some()
    };
    let suggested = suggested.filter(is_like);
    let is_dashed = argument.starts_with('-') && !argument.starts_with("--");
    match suggested {
        None if error.kind() == ErrorKind::UnknownArgument && is_dashed => {
            format!("{complaint}; if it is a key, write `--` before it")
        }
        Some(suggested) => format!("{complaint}; did you mean `{suggested}`?"),
        None => format!("{complaint}; see --help"),
    }
}

/// A context as text, with commas between several values.
fn text(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// Sentence about a value that its parser rejects; the reason names the valid ones.
fn refused_value(argument: &str, value: &str, error: &Error) -> String {
    let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    if !reason.starts_with("must be ") {
        return format!("`{argument}` cannot be `{value}`: {reason}");
    }
    let flag = argument.split_whitespace().next().unwrap_or(argument);
    format!("{flag} is {value}, but {reason}")
}

/// The sentence with the names of flags as they were typed: `--write-buffer-size`, and not
/// `--write_buffer_size`.
pub fn with_typed_flags(sentence: &str, arguments: impl IntoIterator<Item = OsString>) -> String {
    let mut sentence = sentence.to_string();
    for argument in arguments {
        let Some(text) = argument.to_str().filter(|text| text.starts_with("--")) else { continue };
        let typed = text.split('=').next().unwrap_or(text);
        let name = typed[2..].replace('-', "_");
        let name = match name.as_str() {
            "target_file_size_base" => "max_file_size",
            "compression_type" => "compression",
            name => name,
        };
        let known = format!("--{name}");
        let Some(at) = sentence.find(&known) else { continue };
        let is_longer = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        if !name.is_empty() && !sentence[at + known.len()..].starts_with(is_longer) {
            sentence.replace_range(at..at + known.len(), typed);
        }
    }
    sentence
}

fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_spell_flags_as_typed() {
        let typed = |sentence, arguments: &[&str]| {
            with_typed_flags(sentence, arguments.iter().map(|argument| OsString::from(*argument)))
        };
        let sentence = "--write_buffer_size is 1, but must be 4096";
        let message = typed(sentence, &["bench", "--num", "--write-buffer-size=1"]);
        assert_eq!(message, "--write-buffer-size is 1, but must be 4096");
        assert_eq!(typed(sentence, &["--write_buffer_size", "1", "--write"]), sentence);
        let message = typed("--max_file_size is 1", &["--target-file-size-base=1"]);
        assert_eq!(message, "--target-file-size-base is 1");
        assert_eq!(typed("--", &["--", "--="]), "--");
    }
}
