//! Comparison of the subjects' answers to the same lookups: a different answer stops the run.
//!
//! INVARIANT: subjects with the same lookups, in any order, find as many values, with the same
//! checksum over every byte.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::engine::{ReadDigest, Result};

/// Identity of a set of lookups: keys and values, figure, and round.
type QuestionKey = (String, &'static str, u32);

/// Answers of the first subject, shared by all subjects of an experiment.
#[derive(Debug, Clone, Default)]
pub struct AnswerCheck(Rc<RefCell<BTreeMap<QuestionKey, (String, ReadDigest)>>>);

impl AnswerCheck {
    /// Compares the answers of `subject` with the first answers to the same lookups: `keys` names
    /// the keys and values in the store, `what` the figure.
    ///
    /// # Errors
    /// A sentence that names both subjects and their answers.
    pub fn check(
        &self,
        keys: &str,
        what: &'static str,
        round: u32,
        subject: &str,
        tally: ReadDigest,
    ) -> Result<()> {
        let mut answers = self.0.borrow_mut();
        let question = (keys.to_string(), what, round);
        let (name, first) = answers.entry(question).or_insert_with(|| (subject.to_string(), tally));
        if *first == tally {
            return Ok(());
        }
        Err(format!(
            "{subject} and {name} answer {what} differently: {} values and {} were found, with \
             checksums {:x} and {:x}; at least one of them is wrong, and no figure of this run \
             counts",
            tally.found, first.found, tally.checksum, first.checksum
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_byte_differs_only_for_the_same_question() {
        let answers = AnswerCheck::default();
        let tally = |value: &[u8]| {
            let mut tally = ReadDigest::default();
            tally.add_value(value);
            tally
        };
        answers.check("1 M", "reads", 0, "a", tally(b"abc")).expect("the first");
        answers.clone().check("1 M", "reads", 0, "b", tally(b"abc")).expect("the same");
        answers.check("1 M", "reads", 1, "b", tally(b"abd")).expect("another round");
        answers.check("2 M", "reads", 0, "b", tally(b"abd")).expect("other keys");
        let error = answers.check("1 M", "reads", 0, "b", tally(b"abd")).expect_err("differs");
        assert!(error.to_string().starts_with("b and a answer reads differently"), "{error}");
    }
}
