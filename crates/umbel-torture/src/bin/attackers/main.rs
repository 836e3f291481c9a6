//! Measures an honest client of `umbel serve` beside hostile clients, beside readers of hidden
//! events, and beside bare fsyncs. Server, honest client and others are separate processes.
//!
//! ```text
//! attackers --umbel PROGRAM [--part attacks|readers|fsyncs]… [--only NAME]… [--report FILE]
//! ```
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "measures other processes by the system's clock")]

mod attack;
mod background_clients;
mod busy_threads;
mod client;
mod fsyncs;
mod hidden_events;
mod honest_client;
mod raw_http2;
mod reading_calls;
mod report;
mod server_process;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::attack::Attack;
use crate::background_clients::BackgroundClients;
use crate::hidden_events::HiddenClass;
use crate::honest_client::Window;
use crate::reading_calls::ReadingCall;
use crate::report::{Comparison, Report};
use crate::server_process::ServerProcess;

/// Number of attackers of each kind.
const ATTACKERS: usize = 50;
/// Number of clients of each reading call.
const READERS: usize = 8;
/// Users that log in for the first time in each window.
const LOGINS: usize = 6;

/// An honest client beside hostile ones.
#[derive(Debug, Parser)]
#[command(name = "attackers", version)]
struct Arguments {
    /// The program `umbel`
    #[arg(long)]
    umbel: PathBuf,
    /// Parts to run; all by default
    #[arg(long, value_parser = ["attacks", "readers", "fsyncs"])]
    part: Vec<String>,
    /// Attacks, classes of hidden events or reading calls to run, by their names
    #[arg(long)]
    only: Vec<String>,
    /// Seconds of each measured window
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Number of pairs of windows of each attack
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Hidden events of each class
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// Folder of the stores
    #[arg(long)]
    directory: PathBuf,
    /// File to which the Markdown report is written
    #[arg(long)]
    report: Option<PathBuf>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, work, address, count] = &words[..]
        && first == background_clients::CHILD
    {
        return background_clients::run(work, address, count);
    }
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(report) => {
            let text = report.markdown();
            println!("{text}");
            match arguments.report.as_ref().map(|path| std::fs::write(path, text)) {
                Some(Err(error)) => fail(&error.to_string()),
                _ => ExitCode::SUCCESS,
            }
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("attackers: {error}");
    ExitCode::FAILURE
}

impl Arguments {
    fn has_part(&self, name: &str) -> bool {
        self.part.is_empty() || self.part.iter().any(|part| part == name)
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Whether readers of a class run; every class where no class is named.
    fn is_chosen_class(&self, name: &str, classes: &[HiddenClass]) -> bool {
        let names_none = classes.iter().all(|class| !self.only.iter().any(|it| it == class.name));
        names_none || self.is_chosen(name)
    }

    /// Whether a reading call runs; every call where no call is named.
    fn is_chosen_call(&self, call: ReadingCall) -> bool {
        let names_none =
            ReadingCall::ALL.iter().all(|call| !self.only.iter().any(|it| it == call.name()));
        names_none || self.is_chosen(call.name())
    }
}

fn run(arguments: &Arguments) -> Result<Report, String> {
    let mut report = Report::new(arguments.seconds, arguments.rounds, arguments.events);
    if arguments.has_part("fsyncs") {
        report.fsyncs = Some(fsyncs::measure(&arguments.umbel, &arguments.directory)?);
    }
    if arguments.has_part("attacks") {
        for attack in Attack::ALL {
            if arguments.is_chosen(attack.name()) {
                let row = measure_attack(arguments, attack)?;
                eprintln!("{}", row.line());
                report.attacks.push(row);
            }
        }
    }
    if arguments.has_part("readers") {
        measure_readers(arguments, &mut report)?;
    }
    Ok(report)
}

/// Measures an attack against a server of its own, in turns with as many idle connections.
fn measure_attack(arguments: &Arguments, attack: Attack) -> Result<Comparison, String> {
    let folder = arguments.directory.join("attack");
    let mut server = ServerProcess::start(&arguments.umbel, &folder)?;
    let address = server.address;
    in_runtime(client::create_users(address))?;
    in_runtime(attack.prepare(address))?;
    let mut row = Comparison::new(attack.name(), attack.description());
    for _ in 0..arguments.rounds {
        let idle = background_clients::IDLE;
        row.idle.push(window(arguments, &mut server, idle, ATTACKERS)?);
        row.busy.push(window(arguments, &mut server, &attack.work(), ATTACKERS)?);
    }
    server.stop()?;
    Ok(row)
}

fn measure_readers(arguments: &Arguments, report: &mut Report) -> Result<(), String> {
    let folder = arguments.directory.join("readers");
    let classes = hidden_events::fill(&folder, arguments.events)?;
    let mut server = ServerProcess::start_on(&arguments.umbel, &folder)?;
    in_runtime(client::create_users(server.address))?;
    for class in &classes {
        in_runtime(class.prepare(server.address))?;
        if !arguments.is_chosen_class(class.name, &classes) {
            continue;
        }
        for call in ReadingCall::ALL {
            if !arguments.is_chosen_call(call) {
                continue;
            }
            let work = call.work(class);
            let mut row = Comparison::new(&format!("{}, {}", class.name, call.name()), "");
            for _ in 0..arguments.rounds {
                let idle = background_clients::IDLE;
                row.idle.push(window(arguments, &mut server, idle, READERS)?);
                row.busy.push(window(arguments, &mut server, &work, READERS)?);
            }
            eprintln!("{}", row.line());
            report.readers.push(row);
        }
    }
    server.stop()
}

/// Measures the honest client beside background clients that do this work.
fn window(
    arguments: &Arguments,
    server: &mut ServerProcess,
    work: &str,
    count: usize,
) -> Result<Window, String> {
    let users = client::new_users(LOGINS);
    in_runtime(client::create(server.address, &users))?;
    let clients = BackgroundClients::start(work, server.address, count)?;
    let mut window = honest_client::measure(server, &clients, arguments.seconds, &users)?;
    window.calls = clients.stop()?;
    Ok(window)
}

fn in_runtime<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

/// Reads an address.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}
