//! The program `umbel-torture`, as it is called by hand. The test command runs its campaigns.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    use std::process::{Command, Output};

    fn torture(arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel-torture"));
        command.args(arguments).output().unwrap()
    }

    #[test]
    fn a_campaign_says_what_it_tried_and_ends_with_0() {
        let run = torture(&["--campaign", "directories", "--scripts", "2", "--seed", "7"]);
        let said = String::from_utf8(run.stdout).unwrap();
        assert!(run.status.success() && said.contains("directories"), "{said}");
    }

    #[test]
    fn an_unknown_campaign_is_refused_with_the_names_of_all() {
        let run = torture(&["--campaign", "directory"]);
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains("'directory'") && said.contains("directories"), "{said}");
    }

    #[test]
    fn what_cannot_be_replayed_is_refused() {
        let run = torture(&["--replay", "directories"]);
        assert!(!run.status.success(), "{run:?}");
    }
}
