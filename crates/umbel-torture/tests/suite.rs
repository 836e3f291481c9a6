//! Tests of the command line of `umbel-torture`. The test command runs its campaigns.
#![forbid(unsafe_code)]

#[cfg(test)]
mod suite {
    use std::process::{Command, Output};

    fn torture(arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel-torture"));
        command.args(arguments).output().unwrap()
    }

    #[test]
    fn campaign_reports_its_counts_and_exits_with_0() {
        let run = torture(&["--campaign", "directories", "--scripts", "2", "--seed", "7"]);
        let text = String::from_utf8(run.stdout).unwrap();
        assert!(run.status.success() && text.contains("directories"), "{text}");
    }

    #[test]
    fn unknown_campaign_is_rejected_with_the_known_names() {
        let run = torture(&["--campaign", "directory"]);
        let text = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{text}");
        assert!(text.contains("'directory'") && text.contains("directories"), "{text}");
    }

    #[test]
    fn invalid_replay_is_rejected() {
        let run = torture(&["--replay", "directories"]);
        assert!(!run.status.success(), "{run:?}");
    }
}
