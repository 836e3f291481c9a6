//! Reader for the lines of a `Cargo.toml` that the rules need.
//!
//! The reader is no TOML parser: it knows section headers and `key = value` lines, which is how
//! this workspace writes its manifests. A manifest that it cannot read has no floor, which the
//! floor rule reports.

/// Table that contains a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencyKind {
    /// `[dependencies]`.
    Normal,
    /// `[build-dependencies]`.
    Build,
    /// `[dev-dependencies]`.
    Dev,
}

/// One dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Name of the crate, as in the table.
    pub name: String,
    /// The table that contains it.
    pub kind: DependencyKind,
    /// Whether the dependency's version comes from the workspace table.
    pub from_workspace: bool,
    /// Whether the dependency's entry says that it is optional; not set for a dependency with its
    /// own table.
    pub is_optional: bool,
    /// Line of the dependency, counted from 1.
    pub line: usize,
}

/// Content of a `Cargo.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// `package.name`; empty if the file describes no package.
    pub name: String,
    /// `package.metadata.floor`.
    pub layer: Option<u32>,
    /// Every dependency, including platform-specific ones.
    pub dependencies: Vec<Dependency>,
    /// Third-party crates of `[workspace.dependencies]` with the line, and whether a comment gives
    /// the reason. The comment is right above the crate, or above its neighbours and names the
    /// crate.
    pub workspace_dependencies: Vec<(String, usize, bool)>,
    /// Whether `lib.test` is false: no unit test of the library runs.
    pub skips_unit_tests: bool,
}

impl Manifest {
    /// Reads the text of a `Cargo.toml`.
    pub fn parse(text: &str) -> Manifest {
        let mut manifest = Manifest::default();
        let mut section = String::new();
        let mut comment = String::new();
        let mut previous_is_comment = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
                && !line.contains('=')
            {
                section = header.trim_matches(|c| c == '[' || c == ']').to_string();
                manifest.read_header(&section, index + 1);
            } else if let Some((key, value)) = line.split_once('=')
                && !line.starts_with('#')
            {
                let entry = Entry {
                    key: key.trim(),
                    value: value.trim(),
                    line: index + 1,
                    has_reason: previous_is_comment || comment.contains(key.trim()),
                };
                manifest.read_entry(&section, &entry);
            }
            // `# -- title --` divides the table; it gives no reason.
            previous_is_comment = line.starts_with('#') && !line.starts_with("# -- ");
            if line.starts_with('#') {
                comment = line.to_string();
            }
        }
        manifest
    }

    fn read_header(&mut self, section: &str, line: usize) {
        // `[dependencies.name]` defines one dependency as a table of its own.
        if let Some((table, name)) = section.rsplit_once('.')
            && let Some(kind) = dependency_kind(table)
        {
            let name = name.trim_matches('"').to_string();
            let (from_workspace, is_optional) = (false, false);
            let dependency = Dependency { name, kind, from_workspace, is_optional, line };
            self.dependencies.push(dependency);
        }
    }

    fn read_entry(&mut self, section: &str, entry: &Entry<'_>) {
        match (section, entry.key) {
            ("package", "name") => self.name = entry.value.trim_matches('"').to_string(),
            ("package.metadata", "floor") => self.layer = entry.value.parse().ok(),
            ("lib", "test") => self.skips_unit_tests = entry.value == "false",
            ("workspace.dependencies", key) => {
                if !entry.value.contains("path =") {
                    let row = (key.to_string(), entry.line, entry.has_reason);
                    self.workspace_dependencies.push(row);
                }
            }
            _ => {
                if let Some(kind) = dependency_kind(section) {
                    let name = entry.key.split('.').next().unwrap_or(entry.key);
                    let from_workspace = entry.key.ends_with(".workspace")
                        || entry.value.contains("workspace = true");
                    self.dependencies.push(Dependency {
                        name: name.trim_matches('"').to_string(),
                        kind,
                        from_workspace,
                        is_optional: entry.value.contains("optional = true"),
                        line: entry.line,
                    });
                }
            }
        }
    }
}

struct Entry<'a> {
    key: &'a str,
    value: &'a str,
    line: usize,
    has_reason: bool,
}

fn dependency_kind(section: &str) -> Option<DependencyKind> {
    let table = if section.starts_with("target.") {
        section.rsplit('.').next().unwrap_or(section)
    } else {
        section
    };
    match table {
        "dependencies" => Some(DependencyKind::Normal),
        "build-dependencies" => Some(DependencyKind::Build),
        "dev-dependencies" => Some(DependencyKind::Dev),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_floors_and_all_dependency_forms_are_parsed() {
        let manifest = Manifest::parse(
            "[package]\nname = \"umbel-x\"\n[package.metadata]\nfloor = 2\n[dependencies]\n\
             a.workspace = true\nb = { workspace = true, features = [\"std\"] }\nc = \"1\"\n\
             [dependencies.d]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\n\
             e.workspace = true\n[dev-dependencies]\nf.workspace = true\n",
        );
        assert_eq!((manifest.name.as_str(), manifest.layer), ("umbel-x", Some(2)));
        let seen: Vec<_> = manifest
            .dependencies
            .iter()
            .map(|dependency| {
                (dependency.name.as_str(), dependency.kind, dependency.from_workspace)
            })
            .collect();
        let normal = DependencyKind::Normal;
        let expected = [
            ("a", normal, true),
            ("b", normal, true),
            ("c", normal, false),
            ("d", normal, false),
            ("e", normal, true),
            ("f", DependencyKind::Dev, true),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn unexplained_workspace_dependency_is_recognized() {
        let manifest = Manifest::parse(
            "[workspace.dependencies]\n# -- ours --\nours = { path = \"ours\" }\n# Reason.\n\
             a = \"1\"\nb = \"1\"\n# c and delta.\nc = \"1\"\ndelta = \"1\"\n",
        );
        let row = |name: &str, line, explained| (name.to_string(), line, explained);
        let expected =
            [row("a", 5, true), row("b", 6, false), row("c", 8, true), row("delta", 9, true)];
        assert_eq!(manifest.workspace_dependencies, expected);
    }
}
