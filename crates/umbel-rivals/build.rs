//! Builds the Go part of Pebble if the feature `pebble` is enabled.

use std::path::PathBuf;
use std::process::Command;

/// Source files of the Go part.
const SOURCES: [&str; 5] = ["go.mod", "go.sum", "options.go", "read.go", "store.go"];

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PEBBLE").is_none() {
        return Ok(());
    }
    for source in SOURCES {
        println!("cargo:rerun-if-changed=pebble/{source}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?);
    // Without cgo's resolvers for hosts and users, which this code does not need, it needs no
    // further library.
    let status = Command::new("go")
        .args(["build", "-buildmode=c-archive", "-trimpath", "-buildvcs=false", "-mod=readonly"])
        .args(["-tags", "netgo,osusergo", "-o"])
        .arg(out.join("libumbel_pebble.a"))
        .arg(".")
        .current_dir("pebble")
        .status()
        .map_err(|error| format!("the feature `pebble` needs Go: `go` did not run: {error}"))?;
    if !status.success() {
        return Err(format!("`go build` in crates/umbel-rivals/pebble failed: {status}"));
    }
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=umbel_pebble");
    Ok(())
}
