//! What those who are asked the same answer: one who answers something else stops the run.
//!
//! INVARIANT: who is asked the same, in whatever order, finds as many values, and the sum over
//! every byte of them is the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::engine::{Result, Tally};

/// What is asked: of which keys and values, what, and in which round.
type Question = (String, &'static str, u32);

/// What the first of those who were asked answered, shared by all subjects of an experiment.
#[derive(Debug, Clone, Default)]
pub struct Answers(Rc<RefCell<BTreeMap<Question, (String, Tally)>>>);

impl Answers {
    /// Compares what `who` answered with what was answered first to the same question: `keys` names
    /// the keys and values in the store, `what` the figure.
    ///
    /// # Errors
    /// A sentence that names both and what each found.
    pub fn check(
        &self,
        keys: &str,
        what: &'static str,
        round: u32,
        who: &str,
        tally: Tally,
    ) -> Result<()> {
        let mut answers = self.0.borrow_mut();
        let question = (keys.to_string(), what, round);
        let (name, first) = answers.entry(question).or_insert_with(|| (who.to_string(), tally));
        if *first == tally {
            return Ok(());
        }
        Err(format!(
            "{who} and {name} answer {what} differently: {} values and {} were found, with \
             checksums {:x} and {:x}; at least one of them is wrong, and no figure of this run \
             counts",
            tally.found, first.found, tally.sum, first.sum
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_other_byte_is_another_answer_to_the_same_question_only() {
        let answers = Answers::default();
        let tally = |value: &[u8]| {
            let mut tally = Tally::default();
            tally.value(value);
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
