//! [`MeasuredRun`]: a program that ran, with its time, its processor time and its peak memory.

use std::path::Path;
use std::process::Command;

use crate::checkout::file_tree;
use crate::object_stores::object_server::{ObjectServer, without_cloud_variables};
use crate::object_stores::store_process::StoreProcess;
use crate::tools::built_programs;

/// Time, processor time and peak memory of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Time in seconds.
    pub seconds: f64,
    /// Processor time in seconds.
    pub processor_seconds: f64,
    /// Peak memory.
    pub memory_bytes: u64,
    /// Processor time of the object store meanwhile, in seconds; 0 if the system does not show it.
    pub store_processor_seconds: f64,
}

/// Output of a program that ran, and its usage.
#[derive(Debug)]
pub struct MeasuredRun {
    /// Usage of the process.
    pub usage: Usage,
    /// Standard output before the last line.
    pub output: String,
    /// Last line of the output: names and values of the measurements.
    settings: String,
}

impl MeasuredRun {
    /// Runs `umbel` of the release build with the key of an object store.
    ///
    /// # Errors
    /// The program failed, with the last line of its errors.
    pub fn umbel(store: &StoreProcess, arguments: &[&str]) -> Result<MeasuredRun, String> {
        let mut command = python_script("measured_run.py")?;
        command.arg(built_programs::released_program("umbel")).args(arguments);
        command.env_remove("UMBEL_DB");
        let name = format!("umbel {}", arguments.join(" "));
        MeasuredRun::run(&name, &mut command, store)
    }

    /// Copies files of a folder into a bucket, or objects into a new folder, with Amazon's client.
    ///
    /// # Errors
    /// The transfer failed.
    pub fn transfer(
        store: &StoreProcess,
        direction: &str,
        prefix: &str,
        folder: &Path,
    ) -> Result<MeasuredRun, String> {
        let mut command = python_script("s3_transfer.py")?;
        let endpoint = store.variables.iter().find(|(name, _)| name == "AWS_ENDPOINT_URL");
        let bucket = store.url.strip_prefix("s3://");
        let (Some((_, endpoint)), Some(bucket)) = (endpoint, bucket) else {
            return Err(format!("{} is no bucket with an endpoint", store.url));
        };
        command.args([endpoint, bucket, direction, prefix]).arg(folder);
        MeasuredRun::run(&format!("{direction} with boto3"), &mut command, store)
    }

    /// Returns a measurement that the program printed.
    pub fn setting(&self, name: &str) -> Option<&str> {
        setting(&self.settings, name)
    }

    /// Returns a number that the program printed.
    ///
    /// # Errors
    /// The number is absent.
    pub fn number(&self, name: &str) -> Result<f64, String> {
        number(&self.settings, name)
    }

    fn run(name: &str, command: &mut Command, store: &StoreProcess) -> Result<MeasuredRun, String> {
        let before = store.processor_seconds();
        let variables = store.variables.iter().map(|(name, value)| (name, value));
        let output = without_cloud_variables(command).envs(variables).output();
        let after = store.processor_seconds();
        let output = output.map_err(|error| format!("`{name}`: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`{name}`: {}", errors.lines().last().unwrap_or(text.trim())));
        }
        let mut run = MeasuredRun::parse(&text).map_err(|reason| format!("`{name}`: {reason}"))?;
        if let (Some(before), Some(after)) = (before, after) {
            run.usage.store_processor_seconds = after - before;
        }
        Ok(run)
    }

    fn parse(text: &str) -> Result<MeasuredRun, String> {
        let text = text.trim_end();
        let (output, settings) = text.rsplit_once('\n').unwrap_or(("", text));
        let usage = Usage {
            seconds: number(settings, "seconds")?,
            processor_seconds: number(settings, "processor_seconds")?,
            memory_bytes: number(settings, "memory_bytes")? as u64,
            store_processor_seconds: 0.0,
        };
        Ok(MeasuredRun { usage, output: output.to_string(), settings: settings.to_string() })
    }
}

fn setting<'a>(settings: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = settings.split('\t').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(found, value)| (found == name).then_some(value))
}

fn number(settings: &str, name: &str) -> Result<f64, String> {
    let found = setting(settings, name).and_then(|value| value.parse().ok());
    found.ok_or_else(|| format!("no {name} in the last line of the output"))
}

/// Returns the free bytes of the disk of a folder.
///
/// # Errors
/// Python is missing, or the folder is.
pub fn free_bytes(folder: &Path) -> Result<u64, String> {
    let program = "import shutil, sys; print(shutil.disk_usage(sys.argv[1]).free)";
    let mut command = Command::new(ObjectServer::moto_python()?);
    let output = command.args(["-I", "-c", program]).arg(folder).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    let free = text.ok().and_then(|text| text.parse().ok());
    free.ok_or_else(|| format!("the free space of {} is unknown", folder.display()))
}

fn python_script(name: &str) -> Result<Command, String> {
    let mut command = Command::new(ObjectServer::moto_python()?);
    command.arg("-I").arg(file_tree::root().join("xtask/object_servers").join(name));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_the_last_line_of_the_output() {
        let text = "{\"position\":7}\nseconds=2.5\tprocessor_seconds=1\tmemory_bytes=4096\n";
        let run = MeasuredRun::parse(text).unwrap();
        assert_eq!((run.usage.seconds, run.usage.processor_seconds), (2.5, 1.0));
        assert_eq!(run.usage.memory_bytes, 4096);
        assert_eq!(run.output, "{\"position\":7}");
        assert_eq!(run.number("memory_bytes"), Ok(4096.0));
        assert_eq!(run.setting("client"), None);
    }

    #[test]
    fn output_without_usage_is_an_error() {
        let error = MeasuredRun::parse("seconds=2.5\tmemory_bytes=1").unwrap_err();
        assert_eq!(error, "no processor_seconds in the last line of the output");
        assert!(MeasuredRun::parse("").is_err());
    }
}
