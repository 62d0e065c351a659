//! Mercury: the one binary. Composition root and command line; every command is a room of its own here, and the work
//! itself lives in the crates below.

mod check;
mod counterfactual;
mod diagnose;
mod duration;
mod emulate;
mod endpoints;
mod exit;
mod exposures;
mod frontier;
mod inject;
mod keys;
mod load;
mod packet;
mod policy;
mod probe;
mod rehearse;
mod rollout;
mod serve;
mod simulate;
mod up;
mod world;

use clap::{Parser, Subcommand};
use exit::Exit;

/// Gives memory back that is free. The allocator of glibc keeps what lies below the last byte in use, so a flood of connections
/// would be paid for as long as the process lives; `mercury load --profile connection-flood` holds this against its baseline.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A gRPC suite that misses its tail objective, repairs it, and lets you rehearse the repair.
#[derive(Debug, Parser)]
#[command(name = "mercury", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one service, or the emulator, in the foreground.
    Serve(serve::Args),
    /// Run the whole suite as child processes on loopback, in the foreground.
    Up(up::Args),
    /// Drive a running suite with an open-loop workload; with --profile, a suite of its own, with a verdict.
    Load(load::Args),
    /// One process of a flood of connections; the profile connection-flood starts several.
    #[command(hide = true)]
    Flood(load::flood::Args),
    /// Rehearse: start a suite, drive it, judge it by gates, and write the evidence.
    #[command(subcommand)]
    Rehearse(rehearse::Command),
    /// Look into the emulated dependencies, or change what they do.
    #[command(subcommand)]
    Emulator(emulate::Command),
    /// Ask a process whether it is ready; for health checks in images without a shell.
    Probe(probe::Args),
    /// Validate the files that a user edits: policies, workloads, scenarios, rollouts, migrations, load profiles and
    /// frontiers, packets, regions and drills.
    Check(check::Args),
    /// Make keys for the signed entitlement summary.
    #[command(subcommand)]
    Keys(keys::Command),
    /// Look into a policy: what its figures add up to.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Recompute what a document's figures say.
    #[command(subcommand)]
    Packet(packet::Command),
    /// Say what may be behind a tail, and what its figures support.
    #[command(subcommand)]
    Diagnose(diagnose::Command),
    /// Look at the migration to the signed entitlement summary, or move it on evidence.
    #[command(subcommand)]
    Rollout(rollout::Command),
    /// Look whether the exposure ledger says what happened.
    #[command(subcommand)]
    Exposures(exposures::Command),
    /// The region at full size in virtual time: one run, the packet, the frontier, and what would have been.
    Simulate(simulate::Args),
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Up(args) => up::run(args),
        Command::Load(args) => load::run(args),
        Command::Flood(args) => load::flood::run(args),
        Command::Rehearse(command) => rehearse::run(command),
        Command::Emulator(command) => emulate::run(command),
        Command::Probe(args) => probe::run(args),
        Command::Check(args) => check::run(&args),
        Command::Keys(command) => keys::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Packet(command) => packet::run(command),
        Command::Diagnose(command) => diagnose::run(command),
        Command::Rollout(command) => rollout::run(command),
        Command::Exposures(command) => exposures::run(command),
        Command::Simulate(args) => simulate::run(args),
    };
    exit.report()
}

impl From<runtime::StartError> for Exit {
    fn from(error: runtime::StartError) -> Self {
        match error {
            runtime::StartError::Usage(message) => Self::Usage(message),
            runtime::StartError::Failed(message) => Self::Error(message),
        }
    }
}
