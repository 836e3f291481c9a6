//! [`Profile`]: a profile of the files that Amazon's tools share, `credentials` and `config`.
//!
//! Grammar: `[name]` begins a section, `key = value` is a setting of it, an indented `key = value`
//! is a setting of the group that the line `group =` before it begins. `#` and `;` begin comments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use umbel_base::{Error, Result};
use umbel_env::{Access, Env};

use crate::variables::Variables;

/// Maximum length of a file, which is far beyond the files of users.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Settings by section. A key of a group is `group.key`.
type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// Name of a profile, and the files that can have it.
#[derive(Debug, Clone)]
pub(super) struct ProfileLocation {
    /// Name of the profile.
    pub(super) name: String,
    /// Whether a variable or a URL names the profile, so that it must exist.
    is_named: bool,
    credentials: Option<PathBuf>,
    config: Option<PathBuf>,
}

/// Settings of one profile; those of `credentials` replace those of `config`.
#[derive(Debug, Clone, Default)]
pub(super) struct Profile {
    settings: BTreeMap<String, String>,
}

impl ProfileLocation {
    /// Returns the profile that the variables name.
    pub(super) fn of(variables: &Variables) -> ProfileLocation {
        let home = variables.first(&["HOME", "USERPROFILE"]).map(Path::new);
        let path = |variable: &str, name: &str| match variables.get(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => home.map(|home| home.join(".aws").join(name)),
        };
        let name = variables.first(&["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]);
        ProfileLocation {
            name: name.unwrap_or("default").to_owned(),
            is_named: name.is_some(),
            credentials: path("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: path("AWS_CONFIG_FILE", "config"),
        }
    }

    /// Reads the profile. Files that do not exist have no profiles.
    ///
    /// # Errors
    /// A file cannot be read, or no file has the profile although it was named.
    pub(super) fn read(&self, env: &Env) -> Result<Profile> {
        let config = self.config.as_deref().map(|path| sections(env, path)).transpose()?;
        let credentials =
            self.credentials.as_deref().map(|path| sections(env, path)).transpose()?;
        let (config, credentials) = (config.unwrap_or_default(), credentials.unwrap_or_default());
        let in_config = match config.get(&format!("profile {}", self.name)) {
            Some(found) => Some(found),
            None if self.name == "default" => config.get("default"),
            None => None,
        };
        let in_credentials = credentials.get(&self.name);
        if self.is_named && in_config.is_none() && in_credentials.is_none() {
            return Err(Error::invalid(format!(
                "the profile {:?} is in none of {}; correct AWS_PROFILE, or add the profile",
                self.name,
                self.files()
            )));
        }
        let mut settings = in_config.cloned().unwrap_or_default();
        if let Some(services) = settings.get("services").cloned()
            && let Some(services) = config.get(&format!("services {services}"))
        {
            settings.extend(services.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        settings.extend(in_credentials.cloned().unwrap_or_default());
        Ok(Profile { settings })
    }

    /// Names the files, for messages.
    pub(super) fn files(&self) -> String {
        let paths = [&self.credentials, &self.config];
        let named: Vec<String> =
            paths.into_iter().flatten().map(|path| path.display().to_string()).collect();
        match named.is_empty() {
            true => "~/.aws (HOME is not set)".to_owned(),
            false => named.join(" and "),
        }
    }
}

impl Profile {
    /// Returns a setting; `None` if it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the key id, the secret and the session token.
    pub(super) fn access_key(&self) -> Option<(&str, &str, Option<&str>)> {
        let (id, secret) = (self.get("aws_access_key_id")?, self.get("aws_secret_access_key")?);
        Some((id, secret, self.get("aws_session_token")))
    }

    /// Returns the setting that gets credentials by a means that this program does not have.
    pub(super) fn unsupported_credentials(&self) -> Option<&'static str> {
        let names = ["credential_process", "sso_session", "sso_start_url", "source_profile"];
        names.into_iter().find(|name| self.get(name).is_some())
    }
}

fn sections(env: &Env, path: &Path) -> Result<Sections> {
    let file = match env.files.open(path, Access::Read) {
        Err(error) if error.is_missing_file() => return Ok(Sections::new()),
        opened => opened?,
    };
    let len = file.len()?.min(FILE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

fn parse(text: &str) -> Sections {
    let mut sections = Sections::new();
    let (mut section, mut group) = (None::<String>, String::new());
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = content.strip_prefix('[') {
            let name = rest.split(']').next().unwrap_or(rest);
            let name: Vec<&str> = name.split_whitespace().collect();
            let name = name.join(" ").replace('"', "");
            sections.entry(name.clone()).or_default();
            (section, group) = (Some(name), String::new());
            continue;
        }
        let (Some(section), Some((key, value))) = (&section, content.split_once('=')) else {
            continue;
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), without_comment(value.trim()));
        let is_indented = line.starts_with([' ', '\t']);
        let key = match is_indented && !group.is_empty() {
            true => format!("{group}.{key}"),
            false => {
                group = if value.is_empty() { key.clone() } else { String::new() };
                key
            }
        };
        let settings = sections.entry(section.clone()).or_default();
        settings.insert(key, value.to_owned());
    }
    sections
}

/// Returns a value without a comment, which begins after a space.
fn without_comment(value: &str) -> &str {
    let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|begin| value.find(begin)).min();
    comment.map_or(value, |end| value[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
# a comment
[default]
region = eu-central-1   ; of the company
output=json

[profile backup]
region=eu-west-1
services = own
s3 =
  addressing_style = virtual
  max_concurrent_requests = 20
ca_bundle = /etc/ca.pem

[profile \"with space\"]
role_arn = arn:aws:iam::1:role/r
web_identity_token_file = /token
[services own]
s3 =
    endpoint_url = http://127.0.0.1:9000
dynamodb =
    endpoint_url = http://127.0.0.1:9001
";
    const CREDENTIALS: &str = "\
[default]
aws_access_key_id = ID
aws_secret_access_key = a/b+c=d#e
[backup]
aws_access_key_id=ID2
AWS_SECRET_ACCESS_KEY=s2
aws_session_token = token==
[process]
credential_process = /bin/x
";

    fn read(name: Option<&str>) -> Result<Profile> {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        std::fs::write(path("config"), CONFIG).expect("written");
        std::fs::write(path("credentials"), CREDENTIALS).expect("written");
        let (credentials, config) = (path("credentials"), path("config"));
        let mut values =
            vec![("AWS_SHARED_CREDENTIALS_FILE", credentials), ("AWS_CONFIG_FILE", config)];
        values.extend(name.map(|name| ("AWS_PROFILE", name.to_owned())));
        ProfileLocation::of(&Variables::new(values)).read(&Env::system())
    }

    #[test]
    fn profile_joins_both_files() {
        let profile = read(None).expect("a profile");
        assert_eq!(profile.access_key(), Some(("ID", "a/b+c=d#e", None)));
        assert_eq!(profile.get("region"), Some("eu-central-1"));
        let profile = read(Some("backup")).expect("a profile");
        assert_eq!(profile.access_key(), Some(("ID2", "s2", Some("token=="))));
        assert_eq!(profile.get("s3.addressing_style"), Some("virtual"));
        assert_eq!(profile.get("s3.endpoint_url"), Some("http://127.0.0.1:9000"));
        assert_eq!(profile.get("endpoint_url"), None);
        assert_eq!(profile.get("ca_bundle"), Some("/etc/ca.pem"));
        let profile = read(Some("with space")).expect("a profile");
        assert_eq!(profile.get("web_identity_token_file"), Some("/token"));
        assert_eq!((profile.access_key(), profile.unsupported_credentials()), (None, None));
        let profile = read(Some("process")).expect("a profile");
        assert_eq!(profile.unsupported_credentials(), Some("credential_process"));
    }

    #[test]
    fn named_profile_must_exist() {
        let error = read(Some("other")).expect_err("absent").to_string();
        assert!(error.contains("\"other\"") && error.contains("credentials"), "{error}");
        let empty = Variables::new([("HOME", "/nonexistent")]);
        let location = ProfileLocation::of(&empty);
        assert_eq!(location.read(&Env::system()).expect("no profile").get("region"), None);
        assert!(location.files().contains("/nonexistent/.aws/config"), "{}", location.files());
        assert!(ProfileLocation::of(&Variables::default()).files().contains("HOME"));
    }
}
