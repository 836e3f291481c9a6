//! [`Finding`]: the result of a check of `umbel doctor`.

use crate::text::escaping::printable_line;

/// State that a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingState {
    Fine,
    /// The checked function works, but the operator should examine it.
    Doubtful,
    Wrong,
    /// The server has met damaged data.
    Damaged,
    /// The check could not be made.
    Unseen,
}

impl FindingState {
    pub fn word(self) -> &'static str {
        match self {
            FindingState::Fine => "ok",
            FindingState::Doubtful => "look",
            FindingState::Wrong | FindingState::Damaged => "wrong",
            FindingState::Unseen => "skip",
        }
    }
}

/// Result of one check.
#[derive(Debug)]
pub struct Finding {
    pub what: &'static str,
    pub state: FindingState,
    pub message: String,
}

impl Finding {
    /// Line for people. Its message can have texts of the server.
    pub fn to_line(&self) -> String {
        format!("{:<6}{:<13}{}", self.state.word(), self.what, printable_line(&self.message))
    }
}
