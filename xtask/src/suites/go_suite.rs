//! The suite of the Go client, whose module contains its tests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clients::client_programs::Server;
use crate::suites::SuiteRun;
use crate::suites::published_sources::{replace_folder, suite_folder};
use crate::suites::supervised_server::SupervisedServer;
use crate::suites::test_results::{TestResults, Verdict, read_go_output};
use crate::tools::tool_install;

const MODULE: &str = "github.com/kurrent-io/KurrentDB-Client-Go";
const VERSION: &str = "v1.4.2";
/// Folders of the module with tests, relative to the module.
const PACKAGES: [&str; 2] = ["test", "kurrentdb"];
/// File whose tests parse connection strings and never connect.
const PARSER_TESTS: &str = "configuration_test.go";
/// Time after which Go ends a package's tests.
const TIMEOUT: &str = "-timeout=30m";

/// Tests whose projections are programs in JavaScript, which the server does not run. Each of them
/// waits five minutes for its projection.
const LEFT_OUT: &str = "TestProjectionSuite";

/// Endpoints in the sources of the tests, where Docker publishes the ports of its nodes.
const INSECURE: &str = "localhost:2114";
const SECURE: &str = "localhost:2115";
const CLUSTER: [&str; 3] = ["localhost:2111", "localhost:2112", "localhost:2113"];

/// Runs the suite against three servers of one node: insecure, secure, and in place of a cluster.
pub fn run_go_suite() -> SuiteRun {
    let folder = suite_folder("go");
    let module = match download(&folder) {
        Ok(module) => module,
        Err(reason) => return SuiteRun::Unavailable(reason),
    };
    let stores = std::env::temp_dir().join(format!("umbel-suite-go-{}", std::process::id()));
    let run = run_tests(&folder, &module, &stores);
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&stores).ok();
    run.map_or_else(SuiteRun::Broken, SuiteRun::Ran)
}

/// Returns the command `go` with its caches in the folder.
fn go(folder: &Path) -> Command {
    let mut command = Command::new("go");
    command.env("GOPATH", folder.join("gopath")).env("GOCACHE", folder.join("build-cache"));
    // A writable cache can be removed together with the target folder.
    command.env_remove("GOMODCACHE").env("GOFLAGS", "-modcacherw");
    command
}

/// Downloads the module and returns its folder.
fn download(folder: &Path) -> Result<PathBuf, String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let wanted = format!("{MODULE}@{VERSION}");
    let mut command = go(folder);
    let output = command.args(["mod", "download", "-json", &wanted]).current_dir(folder).output();
    let answer = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let answer = answer.unwrap_or_default();
    tool_install::succeeded(&format!("go mod download {wanted}"), output)?;
    let downloaded = downloaded_folder(&answer);
    downloaded.ok_or_else(|| format!("`go mod download {wanted}` printed no folder"))
}

/// Returns the value of `Dir` in the JSON of `go mod download`, which has one key on each line.
fn downloaded_folder(answer: &str) -> Option<PathBuf> {
    let line = answer.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \""))?;
    let end = line.rfind('"')?;
    Some(PathBuf::from(line[..end].replace("\\\\", "\\")))
}

fn run_tests(folder: &Path, module: &Path, stores: &Path) -> Result<TestResults, String> {
    // The module contains the certificates of its nodes.
    let certificates = module.join("certs");
    let insecure = Server::start(&stores.join("insecure"), |command| command.arg("--insecure"))?;
    let secure = secure_server(0, &stores.join("secure"), &certificates)?;
    let (store, own) = (stores.join("cluster"), certificates.clone());
    // A test shuts the leader down, and later ones connect again.
    let cluster = SupervisedServer::start(move |port| secure_server(port, &store, &own))?;
    let mut endpoints = vec![(INSECURE, endpoint(&insecure)?), (SECURE, endpoint(&secure)?)];
    let node = format!("localhost:{}", cluster.port);
    endpoints.extend(CLUSTER.map(|seed| (seed, node.clone())));
    let source = folder.join("source");
    replace_folder(module, &source, &|path| edit_test(path, &endpoints))?;
    let mut results = TestResults::default();
    for package in PACKAGES {
        let log = folder.join(format!("{package}.log"));
        println!("   go test ./{package}, output in {}", log.display());
        let output = run_package(folder, &source, package, &log)?;
        let found = read_go_output(&output);
        if found.is_empty() {
            return Err(format!("no test of {package} ran; read {}", log.display()));
        }
        results.add_all(&format!("{package}:"), found);
    }
    let reason = "its projections are programs in JavaScript".to_string();
    results.add(format!("test:{LEFT_OUT}"), Verdict::Skipped(reason));
    for server in [insecure, secure] {
        if server.stop().counts.failed > 0 {
            return Err("a server did not end as it should".to_string());
        }
    }
    cluster.stop();
    Ok(results)
}

/// Starts a server with the certificates of the module and the password of its tests.
fn secure_server(port: u16, store: &Path, certificates: &Path) -> Result<Server, String> {
    Server::start_at(port, store, |command| {
        command
            .arg("--certificate-file")
            .arg(certificates.join("node1").join("node.crt"))
            .arg("--certificate-private-key-file")
            .arg(certificates.join("node1").join("node.key"))
            .arg("--trusted-root-certificates-path")
            .arg(certificates.join("ca").join("ca.crt"))
            .env("UMBEL_ADMIN_PASSWORD", "changeit")
            .env("UMBEL_OPS_PASSWORD", "changeit")
    })
}

/// Returns the endpoint of a server.
fn endpoint(server: &Server) -> Result<String, String> {
    let port = server.port().ok_or_else(|| format!("no port in `{}`", server.connection))?;
    Ok(format!("localhost:{port}"))
}

/// Returns the text of a test that connects, with the endpoints of the servers.
fn edit_test(path: &Path, endpoints: &[(&str, String)]) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    if !name.ends_with("_test.go") || name == PARSER_TESTS {
        return None;
    }
    let mut text = std::fs::read_to_string(path).ok()?;
    for (published, used) in endpoints {
        // The colon keeps one replacement from replacing another's result.
        text = text.replace(published, &used.replace("localhost:", "localhost::"));
    }
    Some(text.replace("localhost::", "localhost:"))
}

fn run_package(folder: &Path, source: &Path, package: &str, log: &Path) -> Result<String, String> {
    let file = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
    let (stdout, stderr) = file.map_err(|error| format!("{}: {error}", log.display()))?;
    let mut command = go(folder);
    command.args(["test", "-count=1", "-v", TIMEOUT]).arg(format!("-skip=^{LEFT_OUT}$"));
    command.arg(format!("./{package}"));
    let run = command.current_dir(source).stdout(stdout).stderr(stderr).status();
    run.map_err(|error| format!("`go test` did not start: {error}"))?;
    let output = std::fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_downloaded_module_is_read() {
        let answer =
            "{\n\t\"Path\": \"x\",\n\t\"Dir\": \"/go/pkg/mod/x@v1\",\n\t\"Sum\": \"h\"\n}\n";
        assert_eq!(downloaded_folder(answer), Some(PathBuf::from("/go/pkg/mod/x@v1")));
        assert_eq!(downloaded_folder("{}"), None);
    }
}
