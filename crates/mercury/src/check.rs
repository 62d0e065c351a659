//! Check: `mercury check`, validation of the files that a user edits, with every fault at once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use model::{
    drill::Drill, frontier::Frontier, load_profile::Profile, migration::Plan, packet::Packet, policy::Policy,
    region::Region, rollout::Ladder, scenario::Scenario, workload::Workload,
};

use crate::exit::Exit;

/// Arguments of `mercury check`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    /// A policy, like config/policy.toml.
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// A workload, like config/workloads/mercury-home-peak-v4.toml.
    #[arg(long, value_name = "FILE")]
    workload: Vec<PathBuf>,
    /// A scenario, like config/scenarios/peak-slowdown-recovery.toml.
    #[arg(long, value_name = "FILE")]
    scenario: Vec<PathBuf>,
    /// A rollout, like config/rollouts/home-path.toml.
    #[arg(long, value_name = "FILE")]
    rollout: Vec<PathBuf>,
    /// A plan of the migration, like config/migrations/entitlement-summary.toml.
    #[arg(long, value_name = "FILE")]
    migration: Vec<PathBuf>,
    /// A load profile, like config/profiles/steady.toml.
    #[arg(long, value_name = "FILE")]
    profile: Vec<PathBuf>,
    /// A frontier, like config/frontiers/mercury-home.toml.
    #[arg(long, value_name = "FILE")]
    frontier: Vec<PathBuf>,
    /// A packet, like config/packets/relay.toml.
    #[arg(long, value_name = "FILE")]
    packet: Vec<PathBuf>,
    /// A region, like config/regions/mercury-home.toml.
    #[arg(long, value_name = "FILE")]
    region: Vec<PathBuf>,
    /// A diagnostic drill, like config/drills/pricing-wait.toml.
    #[arg(long, value_name = "FILE")]
    drill: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Exit {
    let policies = args.policy.iter().map(|path| read(path, Policy::parse).map(drop));
    let workloads = args.workload.iter().map(|path| read(path, Workload::parse).map(drop));
    let scenarios = args.scenario.iter().map(|path| read(path, Scenario::parse).map(drop));
    let rollouts = args.rollout.iter().map(|path| read(path, Ladder::parse).map(drop));
    let migrations = args.migration.iter().map(|path| read(path, Plan::parse).map(drop));
    let profiles = args.profile.iter().map(|path| read(path, Profile::parse).map(drop));
    let frontiers = args.frontier.iter().map(|path| read(path, Frontier::parse).map(drop));
    let packets = args.packet.iter().map(|path| read(path, Packet::parse).map(drop));
    let regions = args.region.iter().map(|path| read(path, Region::parse).map(drop));
    let drills = args.drill.iter().map(|path| read(path, Drill::parse).map(drop));
    let all = policies
        .chain(workloads)
        .chain(scenarios)
        .chain(rollouts)
        .chain(migrations)
        .chain(profiles)
        .chain(frontiers)
        .chain(packets)
        .chain(regions)
        .chain(drills);
    let faults: Vec<String> = all.filter_map(Result::err).collect();
    if faults.is_empty() {
        println!("every file is valid");
        Exit::Pass
    } else {
        Exit::Usage(faults.join("\n"))
    }
}

/// The given scenario, or the shipped one.
pub(crate) fn scenario(path: Option<&Path>) -> Result<Scenario, Exit> {
    given(path, model::scenario::SHIPPED, Scenario::parse)
}

/// The given workload, or the shipped one.
pub(crate) fn workload(path: Option<&Path>) -> Result<Workload, Exit> {
    given(path, model::workload::SHIPPED, Workload::parse)
}

/// The profile in a file, where the text names one, or the shipped one of that name.
pub(crate) fn load_profile(name: &str) -> Result<Profile, Exit> {
    if let Some(profile) = Profile::shipped(name) {
        return Ok(profile);
    }
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "toml") {
        return read(path, Profile::parse).map_err(Exit::Usage);
    }
    let names: Vec<&str> = Profile::names().collect();
    let text =
        format!("--profile: no profile {name:?}; there are {}, and FILE.toml of your own", names.join(", "));
    Err(Exit::Usage(text))
}

fn given<T>(
    path: Option<&Path>,
    shipped: (&str, &str),
    parse: fn(&str, &str) -> Result<T, model::faults::Faults>,
) -> Result<T, Exit> {
    match path {
        Some(path) => read(path, parse).map_err(Exit::Usage),
        None => parse(shipped.0, shipped.1).map_err(|faults| Exit::Usage(faults.to_string())),
    }
}

/// Reads and parses a file; the error names every fault of it.
pub(crate) fn read<T>(
    path: &Path,
    parse: fn(&str, &str) -> Result<T, model::faults::Faults>,
) -> Result<T, String> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    parse(&name, &text).map_err(|faults| faults.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn checked(path: &Path) -> Exit {
        let line = Line::try_parse_from(["check".as_ref(), "--frontier".as_ref(), path.as_os_str()]);
        run(&line.expect("it reads").args)
    }

    #[test]
    fn a_frontier_is_checked_with_every_fault_at_its_key() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("own.toml");
        let (_, shipped) = model::frontier::SHIPPED;
        fs::write(&file, shipped).expect("written");
        assert!(matches!(checked(&file), Exit::Pass));
        let bad =
            shipped.replacen("endpoint = 640", "endpoint = 700", 1).replacen("minutes = 3", "minutes = 0", 1);
        fs::write(&file, bad).expect("written");
        let Exit::Usage(told) = checked(&file) else { panic!("two faults") };
        assert!(
            told.contains("pairs[8].endpoint: 700 exceeds") && told.contains(": minutes: expected"),
            "{told}"
        );
        assert!(
            matches!(checked(&home.path().join("none.toml")), Exit::Usage(told) if told.contains("cannot read"))
        );
    }
}
