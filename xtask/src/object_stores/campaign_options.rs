//! [`CampaignOptions`]: arguments of `cargo xtask objects` without `--throughput`.

use crate::object_stores::store_kind::StoreKind;

/// Numbers of repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repetitions {
    /// Probes of each store.
    pub probes: u32,
    /// Kills of the process that backs up.
    pub kills: u32,
    /// Kills of the store.
    pub store_kills: u32,
}

impl Repetitions {
    /// Numbers of the full campaign.
    pub const FULL: Repetitions = Repetitions { probes: 100, kills: 50, store_kills: 20 };
    /// Numbers of a trial.
    pub const SMALL: Repetitions = Repetitions { probes: 3, kills: 3, store_kills: 2 };
}

/// Arguments of the campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignOptions {
    /// Whether it is a trial, which writes no report.
    pub is_small: bool,
    /// Stores that the arguments name; none if they name no store.
    named: Vec<StoreKind>,
}

impl CampaignOptions {
    /// Usage of the arguments.
    pub const USAGE: &'static str = "[--small] [--store NAME]...";

    /// Parses the arguments.
    ///
    /// # Errors
    /// An argument is unknown, or a store is unknown or missing.
    pub fn parse(arguments: &[&str]) -> Result<CampaignOptions, String> {
        let mut options = CampaignOptions { is_small: false, named: Vec::new() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match *argument {
                "--small" => options.is_small = true,
                "--store" => {
                    let names = StoreKind::ALL.map(StoreKind::argument).join(", ");
                    let name = rest.next();
                    let name = name.ok_or_else(|| format!("--store needs one of {names}"))?;
                    let kind = StoreKind::ALL.into_iter().find(|kind| kind.argument() == *name);
                    options.named.push(kind.ok_or_else(|| {
                        format!("unknown store `{name}`; the stores are {names}")
                    })?);
                }
                unknown => {
                    return Err(format!(
                        "unknown argument `{unknown}`; use {}, or --throughput as the first one",
                        CampaignOptions::USAGE
                    ));
                }
            }
        }
        Ok(options)
    }

    /// Returns the stores to use, in their order.
    pub fn stores(&self) -> Vec<StoreKind> {
        let is_used = |kind: &StoreKind| self.named.is_empty() || self.named.contains(kind);
        StoreKind::ALL.into_iter().filter(is_used).collect()
    }

    /// Returns the numbers of repetitions.
    pub fn repetitions(&self) -> Repetitions {
        match self.is_small {
            true => Repetitions::SMALL,
            false => Repetitions::FULL,
        }
    }

    /// Returns the command with these arguments, for the report.
    pub fn command(&self) -> String {
        let mut command = "cargo xtask objects".to_string();
        if self.is_small {
            command.push_str(" --small");
        }
        for kind in &self.named {
            command.push_str(&format!(" --store {}", kind.argument()));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_chosen_by_their_names() {
        let all = CampaignOptions::parse(&[]).unwrap();
        assert_eq!(all.stores(), StoreKind::ALL);
        assert_eq!(
            (all.repetitions(), all.command().as_str()),
            (Repetitions::FULL, "cargo xtask objects")
        );
        let two = ["--store", "azurite", "--small", "--store", "seaweedfs"];
        let two = CampaignOptions::parse(&two).unwrap();
        assert_eq!(two.stores(), [StoreKind::SeaweedFs, StoreKind::Azurite]);
        assert_eq!(two.repetitions(), Repetitions::SMALL);
        assert_eq!(two.command(), "cargo xtask objects --small --store azurite --store seaweedfs");
    }

    #[test]
    fn unknown_arguments_are_refused_with_the_known_ones() {
        let error = CampaignOptions::parse(&["--store", "seaweed"]).unwrap_err();
        assert_eq!(
            error,
            "unknown store `seaweed`; the stores are moto-without-conditions, directory, moto, \
             seaweedfs, azurite, ceph"
        );
        let error = CampaignOptions::parse(&["--store"]).unwrap_err();
        assert!(error.starts_with("--store needs one of moto-without-conditions, "), "{error}");
        let error = CampaignOptions::parse(&["--small", "--throughput"]).unwrap_err();
        assert!(error.contains("`--throughput`") && error.contains("[--store NAME]"), "{error}");
    }
}
