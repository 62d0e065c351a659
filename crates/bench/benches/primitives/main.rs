//! Primitives: admission and coalescing beside what one would take instead of them: tokio's semaphore, the bulkhead of
//! tower-resilience, and moka's `get_with`; and the check of a signed summary beside a bare verification.
//!
//! Each does more than its peers (classes with floors and ceilings, a bounded queue, books; deadlines of each caller's own,
//! work that belongs to nobody's request), so the question is what that costs while there is nothing to decide. The
//! contestants of a line take turns lap by lap, so that the machine's noise harms all alike, and figures are medians.
//!
//! Lines of two threads count the laps in which both were at it, so they need two cores with nothing else to do; on a
//! busy machine, a priority above the others (`chrt -f 10`).
//!
//! `--only TEXT` measures the lines that have TEXT in their name, `--rounds N` sets how long, and `--goals` ends with a
//! failure when a goal is missed.

mod admission;
mod coalescing;
mod contest;
mod signed;

use std::process::ExitCode;

use contest::Line;

/// Laps of each contestant, after those that are not counted.
const ROUNDS: usize = 301;

fn main() -> ExitCode {
    let only = argument("--only").unwrap_or_default();
    let rounds = argument("--rounds").map_or(ROUNDS, |text| text.parse().expect("a number")).max(1);
    println!("{}", Line::HEAD);
    let (mut missed, mut unknown) = (0, 0);
    for contest in admission::contests().into_iter().chain(coalescing::contests()).chain(signed::contests()) {
        for threads in [1, 2] {
            let name = contest.name(threads);
            if name.contains(&only) {
                let lines = contest.run(threads, rounds);
                missed += lines.iter().filter(|line| line.misses()).count();
                unknown += lines.iter().filter(|line| line.unknown()).count();
                lines.iter().for_each(|line| println!("{line}"));
            }
        }
    }
    println!("\n{missed} goals missed; medians of at most {rounds} laps, contestants in turn.");
    if unknown > 0 {
        println!("{unknown} lines without a figure: the threads hardly ever met, the machine is busy.");
    }
    if missed > 0 && std::env::args().any(|argument| argument == "--goals") {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The value behind `name` on the command line. Cargo adds arguments of its own, which are nobody's business here.
fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// A runtime as the processes have: one thread of its own, with timers.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

thread_local! {
    static RUNTIME: tokio::runtime::Runtime = runtime();
}

/// Runs a lap on this thread's runtime, without the budget that would make some contestants yield now and then.
fn block_on<T>(lap: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(tokio::task::unconstrained(lap)))
}
