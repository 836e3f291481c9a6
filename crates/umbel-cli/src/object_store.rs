//! `umbel store`: commands for object stores.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use umbel_env::Env;
use umbel_objects::{Check, CheckOutcome, Probe, ProbeReport, ProbeVerdict};

use crate::errors::{CommandError, CommandResult};
use crate::io::output::{Output, note};

/// Difference between the store's clock and this machine's clock that the probe reports.
const CLOCK_DIFFERENCE_MICROS_MAX: u64 = 60_000_000;

/// Commands of `umbel store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Try every guarantee of an object store that backups need; exit code 2 if one is broken
    Probe(ProbeArgs),
}

/// Arguments of `store probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// URL of the store: `file:///DIRECTORY`, `s3://BUCKET/PREFIX`, `gs://...` or `az://...`
    #[arg(value_name = "URL")]
    pub url: String,
}

/// Runs a command of `umbel store`.
pub fn run(command: &StoreCommand, json: bool) -> CommandResult<()> {
    match command {
        StoreCommand::Probe(args) => probe(args, json),
    }
}

fn probe(args: &ProbeArgs, json: bool) -> CommandResult<()> {
    let env = Env::system();
    let store = umbel_objects::open(&env, &args.url).map_err(CommandError::Store)?;
    let report = Probe::new(&env, &*store).map_err(CommandError::Store)?.run();
    let mut output = Output::of_verdict();
    match json {
        true => output.json(&report_json(&report))?,
        false => print(&report, &mut output)?,
    }
    output.flush()?;
    conclude(&report)
}

fn word(outcome: &CheckOutcome) -> &'static str {
    match outcome {
        CheckOutcome::Passed => "ok",
        CheckOutcome::Broken(_) => "broken",
        CheckOutcome::Unfinished(..) => "unfinished",
        CheckOutcome::NotTried => "skip",
    }
}

fn reason(outcome: &CheckOutcome) -> Option<&str> {
    match outcome {
        CheckOutcome::Broken(reason) | CheckOutcome::Unfinished(_, reason) => Some(reason),
        CheckOutcome::Passed | CheckOutcome::NotTried => None,
    }
}

fn print(report: &ProbeReport, output: &mut Output) -> CommandResult<()> {
    for (check, outcome) in &report.checks {
        let line = format!("{:<10}  {check}", word(outcome));
        match reason(outcome) {
            Some(reason) => output.line(&format!("{line}: {reason}"))?,
            None => output.line(&line)?,
        }
    }
    Ok(())
}

fn report_json(report: &ProbeReport) -> Value {
    let check = |(check, outcome): &(Check, CheckOutcome)| {
        json!({
            "check": check.name(), "outcome": word(outcome), "reason": reason(outcome),
        })
    };
    let verdict = match report.verdict() {
        ProbeVerdict::Suitable => "suitable",
        ProbeVerdict::Refused => "refused",
        ProbeVerdict::Unfinished => "unfinished",
    };
    json!({
        "store": report.location,
        "verdict": verdict,
        "checks": report.checks.iter().map(check).collect::<Vec<_>>(),
        "clock_difference_seconds":
            report.clock_difference_micros.map(|micros| micros as f64 / 1e6),
        "leftover_prefix": report.leftover_prefix,
    })
}

/// Prints warnings, and returns the error of a store that must not be used.
fn conclude(report: &ProbeReport) -> CommandResult<()> {
    let store = &report.location;
    if let Some(prefix) = &report.leftover_prefix {
        note(&format!(
            "umbel: warning: objects of the probe are left, whose names begin with {store}/{prefix}"
        ));
    }
    let difference = report.clock_difference_micros.unwrap_or(0);
    if difference.unsigned_abs() > CLOCK_DIFFERENCE_MICROS_MAX {
        let (seconds, side) = (difference.unsigned_abs() / 1_000_000, difference > 0);
        let side = if side { "ahead of" } else { "behind" };
        note(&format!(
            "umbel: warning: the clock of {store} is {seconds} s {side} this machine's clock; \
             synchronize the clocks"
        ));
    }
    let names = |wanted: fn(&CheckOutcome) -> bool| {
        let checks = report.checks.iter().filter(|(_, outcome)| wanted(outcome));
        checks.map(|(check, _)| check.name()).collect::<Vec<_>>().join(", ")
    };
    match report.verdict() {
        ProbeVerdict::Suitable => Ok(()),
        ProbeVerdict::Refused => {
            let broken = names(|outcome| matches!(outcome, CheckOutcome::Broken(_)));
            let message =
                format!("{store} must not be used as an object store: it breaks {broken}");
            Err(CommandError::Usage(message))
        }
        ProbeVerdict::Unfinished => {
            let open = names(|outcome| matches!(outcome, CheckOutcome::Unfinished(..)));
            let message = format!(
                "the probe of {store} was not finished: {open}; remove the causes that it names, \
                 then repeat it"
            );
            Err(CommandError::System(message))
        }
    }
}
