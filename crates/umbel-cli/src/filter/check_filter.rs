//! `umbel filter check`: prints the lines that may be in a filter, like `grep`.

use crate::errors::{CommandError, CommandResult};
use crate::filter::filter_args::CheckArgs;
use crate::filter::filter_file;
use crate::filter::line_batches::LineBatches;
use crate::io::input;
use crate::io::output::Output;

/// Probes the filter for every line; returns [`CommandError::NothingSelected`] if no line is
/// selected.
pub fn run(args: &CheckArgs) -> CommandResult<()> {
    let filter = filter_file::read(&args.filter)?;
    let (hasher, view) = (filter.hasher, filter.view());
    if !args.count {
        input::refuse_output(args.lines.as_deref())?;
    }
    let mut lines = LineBatches::open(args.lines.as_deref())?;
    let mut output = Output::new();
    let (mut hashes, mut found) = (Vec::new(), Vec::new());
    let mut selected = 0u64;
    while lines.read()? {
        hashes.clear();
        hashes.extend(lines.iter().map(|line| hasher.hash(line)));
        found.resize(hashes.len(), true);
        view.contains_batch(&hashes, &mut found);
        let chosen = |&(_, found): &(&[u8], &bool)| *found != args.invert;
        if args.count {
            selected += lines.raw().zip(&found).filter(chosen).count() as u64;
            continue;
        }
        for (line, _) in lines.raw().zip(&found).filter(chosen) {
            selected += 1;
            output.bytes(line)?;
            if !line.ends_with(b"\n") {
                output.bytes(b"\n")?;
            }
        }
        if output.is_terminal() {
            output.flush()?;
        }
    }
    if args.count {
        output.line(&selected.to_string())?;
    }
    output.flush()?;
    if selected == 0 { Err(CommandError::NothingSelected) } else { Ok(()) }
}
