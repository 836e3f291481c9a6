//! `umbel store`: commands for object stores.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use umbel_base::shell_word::quote;
use umbel_env::{Env, Objects};
use umbel_objects::{Check, CheckOutcome, Probe, ProbeReport, ProbeVerdict};
use umbel_slots::{InitStep, LogInit, StoreObject};

use crate::errors::{CommandError, CommandResult};
use crate::io::output::{Output, note};
use crate::replicated_log::{parse_log_id, slot_error};

/// Difference between the store's clock and this machine's clock that the probe reports.
const CLOCK_DIFFERENCE_MICROS_MAX: u64 = 60_000_000;

/// Failed requests in a row after which a creation ends.
const FAILURES_MAX: usize = 5;

/// Commands of `umbel store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Try every guarantee of an object store that backups need; exit code 2 if one is broken
    Probe(ProbeArgs),
    /// Create a replicated log in an empty prefix of an object store, after a probe
    Init(InitArgs),
}

/// Arguments of `store probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// URL of the store: `file:///DIRECTORY`, `s3://BUCKET/PREFIX`, `gs://...` or `az://...`
    #[arg(value_name = "URL")]
    pub url: String,
}

/// Arguments of `store init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// URL of an empty prefix: `file:///DIRECTORY`, `s3://BUCKET/PREFIX`, `gs://...` or `az://...`
    #[arg(value_name = "URL")]
    pub url: String,
    /// Finish an interrupted creation: the id that the refusal of this command named
    #[arg(long, value_name = "ID", value_parser = parse_log_id)]
    pub id: Option<String>,
}

/// Runs a command of `umbel store`.
pub fn run(command: &StoreCommand, json: bool) -> CommandResult<()> {
    match command {
        StoreCommand::Probe(args) => probe(args, json),
        StoreCommand::Init(args) => init(args, json),
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

/// Creates a replicated log.
fn init(args: &InitArgs, json: bool) -> CommandResult<()> {
    let env = Env::system();
    let objects = umbel_objects::open(&env, &args.url).map_err(CommandError::Store)?;
    let id = match &args.id {
        Some(id) => u128::from_str_radix(id, 16).unwrap_or_default().to_be_bytes(),
        None => {
            // Before the probe, which takes seconds.
            refuse_log(&env, &*objects)?;
            env.entropy.id().map_err(CommandError::Store)?
        }
    };
    let report = Probe::new(&env, &*objects).map_err(CommandError::Store)?.run();
    conclude(&report)?;
    let object = StoreObject::new(id);
    let step = create_log(&env, &*objects, object)?;
    print_log(args, &object, objects.location(), step == InitStep::Created, json)
}

/// Refuses a prefix that has a replicated log already.
fn refuse_log(env: &Env, objects: &dyn Objects) -> CommandResult<()> {
    let found = StoreObject::read(objects, &*env.clock).map_err(slot_error)?;
    let Some(found) = found else { return Ok(()) };
    Err(CommandError::usage(format!(
        "{} has the replicated log {id} already; join it with `umbel serve --store URL --node \
         NAME --join {id}`, or choose an empty prefix",
        objects.location(),
        id = found.id_text()
    )))
}

fn create_log(env: &Env, objects: &dyn Objects, object: StoreObject) -> CommandResult<InitStep> {
    let mut creation = LogInit::new(object).map_err(slot_error)?;
    let mut failures = 0;
    loop {
        match creation.step(objects, &*env.clock) {
            Ok(InitStep::Again) => failures = 0,
            Ok(step) => return Ok(step),
            Err(error) if error.is_temporary() && failures < FAILURES_MAX => failures += 1,
            Err(error) => return Err(slot_error(error)),
        }
    }
}

fn print_log(
    args: &InitArgs,
    object: &StoreObject,
    location: &str,
    is_new: bool,
    json: bool,
) -> CommandResult<()> {
    let id = object.id_text();
    let mut output = Output::new().after("the replicated log was created");
    if json {
        output.json(&json!({ "store": location, "log": id, "created": is_new }))?;
        return output.flush();
    }
    let url = quote(&args.url);
    let verb = if is_new { "created the replicated log" } else { "found the replicated log" };
    output.line(&format!("{verb} {id} in {location}"))?;
    output.line("start the first node, which leads, with an empty or missing directory:")?;
    output.line(&format!("  umbel --db DIR serve --insecure --store {url} --node a"))?;
    output.line("then start others, each with a name and an empty directory of its own:")?;
    output
        .line(&format!("  umbel --db DIR serve --insecure --store {url} --node b --join {id}"))?;
    output.line("with certificates instead of --insecure, the nodes have users and encryption")?;
    output.flush()
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
