//! Profile: `mercury load --profile`, one way to put a suite of its own under load, held to conditions that were set before; and
//! `mercury load --find-knee`, the rate at which the objective breaks.

use std::path::PathBuf;

use base::Nanos;
use model::Scale;
use rehearsal::{knee::KneeOptions, profile::ProfileOptions};

use crate::{
    check,
    duration::{self, Span},
    exit::Exit,
    rehearse::{concluded, no_evidence},
    world,
};

/// What a suite that already runs is asked, and a run with a suite of its own decides for itself.
const ELSEWHERE: [&str; 13] = [
    "target",
    "state_dir",
    "workload",
    "rate",
    "record",
    "dilate",
    "duration",
    "warm_up",
    "in_flight_max",
    "connections",
    "timeout",
    "origin",
    "id_prefix",
];

/// Arguments of a profile.
#[derive(Debug, clap::Args)]
pub(super) struct ProfileArgs {
    /// Run this profile against a suite of its own, and end with a verdict: steady, burst, slow-dependency, retry-storm,
    /// large-body, slow-reader, reload, shutdown, connection-flood, or a file like config/profiles/steady.toml.
    #[arg(long, value_name = "NAME", conflicts_with_all = ELSEWHERE, conflicts_with = "scale")]
    profile: Option<String>,
    /// Raise the offered rate of a suite of its own until the objective breaks, and print the knee. --scale says how large the suite
    /// is [default there: 1/24].
    #[arg(long, conflicts_with_all = ELSEWHERE, conflicts_with = "profile")]
    find_knee: bool,
    /// How long each step of --find-knee is watched; a wave comes every ten seconds.
    #[arg(long, value_name = "SPAN", default_value = "10s", requires = "find_knee", value_parser = duration::parse)]
    window: Span,
    /// The short phases of the profile.
    #[arg(long, requires = "profile")]
    quick: bool,
    /// The policy that a suite of its own runs by [default: the shipped one].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "state_dir"])]
    policy: Option<PathBuf>,
}

/// Runs the profile that was asked for, or looks for the knee; `None` when neither was.
pub(super) fn run(args: &super::Args) -> Option<Exit> {
    if args.profile.find_knee {
        return Some(knee(args).unwrap_or_else(|exit| exit));
    }
    if args.profile.policy.is_some() && args.profile.profile.is_none() {
        let text = "--policy: belongs to --profile and --find-knee; a suite that already runs has its own";
        return Some(Exit::Usage(text.to_owned()));
    }
    let name = args.profile.profile.as_deref()?;
    Some(profile(name, args).unwrap_or_else(|exit| exit))
}

fn profile(name: &str, args: &super::Args) -> Result<Exit, Exit> {
    let out = args.out.clone().unwrap_or_else(|| "out".into());
    let options = ProfileOptions {
        quick: args.profile.quick,
        seed: args.seed,
        output: args.output.into(),
        policy: args.profile.policy.clone(),
        ..ProfileOptions::new(check::load_profile(name)?, out)
    };
    Ok(match world::runtime()?.block_on(rehearsal::profile::profile(options)) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    })
}

/// The size of the suite in which the knee is looked for, where it is not said.
const KNEE_SCALE: &str = "1/24";

fn knee(args: &super::Args) -> Result<Exit, Exit> {
    if args.profile.window.0 < Nanos::from_secs(2) {
        return Err(Exit::Usage(
            "--window: expected at least 2s; a shorter step has no steady part".to_owned(),
        ));
    }
    let scale = args.scale.map_or_else(|| Scale::parse(KNEE_SCALE), Ok);
    let options = KneeOptions {
        scale: scale.map_err(|error| Exit::Usage(format!("--scale: {error}")))?,
        window: args.profile.window.0,
        seed: args.seed,
        out: args.out.clone().unwrap_or_else(|| "out".into()),
        output: args.output.into(),
        policy: args.profile.policy.clone(),
        executable: None,
    };
    Ok(match world::runtime()?.block_on(rehearsal::knee::find(options)) {
        Ok(ended) => concluded(ended),
        Err(error) => no_evidence(error),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: super::super::Args,
    }

    fn read(words: &[&str]) -> Result<super::super::Args, String> {
        let line = Line::try_parse_from(std::iter::once("load").chain(words.iter().copied()));
        line.map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_profile_decides_for_itself_what_is_offered() {
        let args = read(&["--profile", "steady", "--quick", "--seed", "7", "--out", "dir"])
            .expect("a line that reads");
        assert_eq!(
            (args.profile.profile.as_deref(), args.profile.quick, args.seed),
            (Some("steady"), true, 7)
        );
        for words in [["--rate", "100"], ["--scale", "1/4"], ["--target", "h:1"], ["--duration", "3s"]] {
            let told = read(&[&["--profile", "steady"][..], &words].concat()).expect_err("refused");
            assert!(told.contains(words[0]) && told.contains("--profile"), "{told}");
        }
        assert!(read(&["--quick"]).is_err(), "short phases are those of a profile");
        assert!(
            read(&["--find-knee", "--profile", "steady"]).is_err()
                && read(&["--find-knee", "--rate", "5"]).is_err()
        );
        let knee = read(&["--find-knee", "--scale", "1/48", "--window", "5s"]).expect("a line that reads");
        assert!(knee.profile.find_knee && knee.scale.is_some());
        assert!(read(&["--window", "5s"]).is_err(), "a window is that of a step");
        assert_eq!(read(&[]).expect("a line that reads").profile.profile, None);
    }

    #[test]
    fn a_profile_that_is_not_there_is_told_which_ones_are() {
        let exit = crate::check::load_profile("stedy").expect_err("refused");
        let crate::exit::Exit::Usage(text) = exit else { panic!("{exit:?}") };
        assert!(
            text.starts_with("--profile: ") && text.contains("steady") && text.contains("connection-flood")
        );
        let exit = crate::check::load_profile("no/such.toml").expect_err("refused");
        assert!(matches!(&exit, crate::exit::Exit::Usage(text) if text.contains("no/such.toml")), "{exit:?}");
    }
}
