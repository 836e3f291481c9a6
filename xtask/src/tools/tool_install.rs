//! Installs programs in other languages that checks need: each is a package from its registry,
//! which is installed once, in its own folder below the target folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::tools::built_programs;

/// Options of `pip install`: no source packages, whose build takes an hour, no prompts, few
/// retries.
const PIP_INSTALL: [&str; 11] = [
    "-I",
    "-m",
    "pip",
    "install",
    "--quiet",
    "--only-binary=:all:",
    "--no-input",
    "--no-cache-dir",
    "--disable-pip-version-check",
    "--retries=1",
    "--timeout=20",
];

/// A version of a Python package.
#[derive(Debug, Clone, Copy)]
pub struct PythonPackage<'a> {
    /// Name in the registry.
    pub name: &'a str,
    /// Extras with their brackets, or empty.
    pub extras: &'a str,
    /// Name of its module.
    pub module: &'a str,
    /// Version.
    pub version: &'a str,
}

/// Returns a Python with this version of a package. The error names what is missing.
pub fn python(folder: &str, package: &str, version: &str) -> Result<PathBuf, String> {
    let package = PythonPackage { name: package, extras: "", module: package, version };
    python_package(folder, &package)
}

/// Returns a Python with a package. The error names what is missing.
pub fn python_package(folder: &str, package: &PythonPackage<'_>) -> Result<PathBuf, String> {
    let PythonPackage { name, extras, module, version } = package;
    let _lock = lock_folder(folder)?;
    let environment = built_programs::target().join(folder);
    let python = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let has_package = |python: &Path| {
        let check = format!(
            "import {module}, importlib.metadata as m; assert m.version('{name}') == '{version}'"
        );
        succeeds(Command::new(python).args(["-I", "-c", &check]))
    };
    if has_package(&python) {
        return Ok(python);
    }
    let made = Command::new(if cfg!(windows) { "python" } else { "python3" })
        .args(["-m", "venv", "--clear"])
        .arg(&environment)
        .output();
    succeeded("python3 -m venv", made)?;
    let wanted = format!("{name}{extras}=={version}");
    let pip = format!("pip install {wanted}");
    succeeded(&pip, Command::new(&python).args(PIP_INSTALL).arg(&wanted).output())?;
    if has_package(&python) {
        return Ok(python);
    }
    Err(format!("`{pip}` succeeded, but the package cannot be imported"))
}

/// A version of a package of Node.
#[derive(Debug, Clone, Copy)]
pub struct NodePackage<'a> {
    /// Name in the registry.
    pub name: &'a str,
    /// Module that is loaded to check the package. That of a program's package must not run it.
    pub module: &'a str,
    /// Version.
    pub version: &'a str,
}

/// Returns a folder in which Node finds a package. The error names what is missing.
pub fn node_modules(folder: &str, package: &NodePackage<'_>) -> Result<PathBuf, String> {
    let _lock = lock_folder(folder)?;
    let NodePackage { name, module, version } = package;
    let folder = built_programs::target().join(folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let modules = folder.join("node_modules");
    let check = format!(
        "require('{module}'); const fs = require('fs'); \
         const text = fs.readFileSync(process.env.NODE_PATH + '/{name}/package.json'); \
         process.exit(JSON.parse(text).version === '{version}' ? 0 : 1)"
    );
    let has_package =
        || succeeds(Command::new("node").args(["-e", &check]).env("NODE_PATH", &modules));
    if has_package() {
        return Ok(modules);
    }
    let wanted = format!("{name}@{version}");
    let made = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" })
        .args(["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"])
        .arg(&folder)
        .arg(&wanted)
        .output();
    let npm = format!("npm install {wanted}");
    succeeded(&npm, made)?;
    if has_package() {
        return Ok(modules);
    }
    Err(format!("`{npm}` succeeded, but the package cannot be loaded"))
}

/// Locks a folder of the target folder until the returned file is dropped: checks that run at the
/// same time need the same packages.
fn lock_folder(folder: &str) -> Result<File, String> {
    let path = built_programs::target().join(format!("{folder}.lock"));
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| format!("{}: {error}", path.display()))
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Fails with the last line of a program's output if the program failed.
pub fn succeeded(what: &str, output: std::io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(|error| format!("`{what}` did not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let bytes = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&bytes).trim().to_string();
    Err(format!("`{what}` failed: {}", text.lines().last().unwrap_or("no output")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: the console was tested beside the clients, and both installed the same package into
    /// one folder. pip failed, and the console was skipped.
    #[test]
    fn packages_of_one_folder_are_installed_one_after_the_other() {
        let folder = format!("xtask-lock-{}", std::process::id());
        let path = built_programs::target().join(format!("{folder}.lock"));
        let held = lock_folder(&folder).unwrap();
        assert!(File::open(&path).unwrap().try_lock().is_err());
        drop(held);
        File::open(&path).unwrap().try_lock().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
