//! Fault: how an emulated dependency misbehaves. Faults are data: ordered rules, of which the first match wins.

use base::{Dependency, Nanos, WorkloadClass, mix};

use crate::{
    draw::{CallDraw, Purpose, Share},
    read::Table,
};

/// Longest delay, duration or start of a fault: a day.
const SPAN_MS_MAX: u64 = 86_400_000;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// Added to the service time.
    Delay(Nanos),
    /// Answered with this gRPC status code, 1 to 16, after the service time.
    Status(u8),
    /// Never answered: ends when the caller leaves, at its deadline, or when the rule goes away.
    Hang,
    /// The stream is reset after the service time.
    Reset,
    /// Refused at once, without service.
    Refuse,
    /// Response headers at the service time, then this long nothing.
    SlowBody(Nanos),
}

impl FaultEffect {
    /// The name used in files, journal and commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delay(_) => "delay",
            Self::Status(_) => "status",
            Self::Hang => "hang",
            Self::Reset => "reset",
            Self::Refuse => "refuse",
            Self::SlowBody(_) => "slow_body",
        }
    }

    const fn content(self) -> (u64, u64) {
        match self {
            Self::Delay(span) => (1, span.get()),
            Self::Status(code) => (2, code as u64),
            Self::Hang => (3, 0),
            Self::Reset => (4, 0),
            Self::Refuse => (5, 0),
            Self::SlowBody(span) => (6, span.get()),
        }
    }
}

/// When and how a dependency misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// The dependency.
    pub dependency: Dependency,
    /// The class it applies to; `None` for all.
    pub class: Option<WorkloadClass>,
    /// Share of the matching calls.
    pub share: Share,
    /// How long the rule applies; `None` until it is cleared.
    pub duration: Option<Nanos>,
    /// What happens.
    pub effect: FaultEffect,
}

impl FaultRule {
    /// The same in slow motion. Whom it hits does not change, since that is drawn over the rule's content.
    #[must_use]
    pub fn dilated(self, factor: u32) -> Self {
        let effect = match self.effect {
            FaultEffect::Delay(span) => FaultEffect::Delay(span.times(factor)),
            FaultEffect::SlowBody(span) => FaultEffect::SlowBody(span.times(factor)),
            same => same,
        };
        Self { effect, duration: self.duration.map(|span| span.times(factor)), ..self }
    }

    /// Whether the rule applies to a call. A keyed draw over the rule's content decides on the share: the same calls are
    /// hit in every run, whatever other rules there are, and a larger share hits all that a smaller one hits.
    pub fn applies(&self, dependency: Dependency, class: WorkloadClass, call: CallDraw) -> bool {
        self.dependency == dependency
            && self.class.is_none_or(|only| only == class)
            && self.share.takes(call.bits(Purpose::Fault(self.content())))
    }

    fn content(&self) -> u64 {
        let (kind, value) = self.effect.content();
        let class = self.class.map_or(0, |class| class.index() as u64 + 1);
        mix::fold64(mix::fold64(mix::fold64(self.dependency.index() as u64, class), kind), value)
    }
}

/// A fault that a scenario declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// Position of the phase it belongs to; it ends with the phase.
    pub phase: usize,
    /// When it starts, after the start of the phase.
    pub after: Nanos,
    /// The rule.
    pub rule: FaultRule,
}

/// Reads one `[[faults]]` table. `phases` are the names that it may refer to.
pub(crate) fn scheduled(table: &mut Table<'_>, phases: &[String]) -> Option<ScheduledFault> {
    let expected = format!("one of {}", phases.join(", "));
    let phase = table.text("phase", &expected, |name| phases.iter().position(|phase| phase == name));
    let after = table.millis_or("after_ms", 0..=SPAN_MS_MAX, Nanos::ZERO);
    let duration = table.millis_or("duration_ms", 1..=SPAN_MS_MAX, Nanos::ZERO);
    let dependency = table.text("dependency", "the name of a dependency", Dependency::parse);
    let class = table.text_opt("class", "standard, premium or enterprise", WorkloadClass::parse);
    // A billionth is the smallest share that is told apart from none.
    let share = table.number("share", 1e-9..=1.0).map(Share::from_ratio);
    let delay = table.millis_or("delay_ms", 1..=SPAN_MS_MAX, Nanos::ZERO);
    let code = table.integer_or("status_code", 1..=16, 0);
    // Spans and code are filled in below, so that a fault of theirs is not reported as one of the effect.
    let effect = table.text("effect", "delay, status, hang, reset, refuse or slow_body", |name| {
        Some(match name {
            "delay" => FaultEffect::Delay(Nanos::ZERO),
            "status" => FaultEffect::Status(0),
            "hang" => FaultEffect::Hang,
            "reset" => FaultEffect::Reset,
            "refuse" => FaultEffect::Refuse,
            "slow_body" => FaultEffect::SlowBody(Nanos::ZERO),
            _ => return None,
        })
    });
    if let (Some(effect), Some(delay), Some(code)) = (effect, delay, code) {
        let wants_delay = matches!(effect, FaultEffect::Delay(_) | FaultEffect::SlowBody(_));
        if wants_delay == delay.is_zero() {
            table.fault("delay_ms", "belongs to the effects delay and slow_body, which need it");
        }
        if matches!(effect, FaultEffect::Status(_)) == (code == 0) {
            table.fault("status_code", "belongs to the effect status, which needs it");
        }
    }
    let duration = duration.map(|span| (!span.is_zero()).then_some(span));
    let effect = match effect? {
        FaultEffect::Delay(_) => FaultEffect::Delay(delay?),
        FaultEffect::SlowBody(_) => FaultEffect::SlowBody(delay?),
        FaultEffect::Status(_) => FaultEffect::Status(u8::try_from(code?).ok()?),
        other => other,
    };
    let rule =
        FaultRule { dependency: dependency?, class: class?, share: share?, duration: duration?, effect };
    Some(ScheduledFault { phase: phase?, after: after?, rule })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draws;

    fn rule(share: Share) -> FaultRule {
        let (dependency, class) = (Dependency::Pricing, Some(WorkloadClass::Premium));
        FaultRule { dependency, class, share, duration: None, effect: FaultEffect::Status(14) }
    }

    #[test]
    fn a_rule_hits_its_dependency_its_class_and_its_share() {
        let draws = Draws::new(3, 1);
        let call = |number: u32| draws.call(Dependency::Pricing, "FetchPrices", u64::from(number), "op", 1);
        let hits = |share, class, dependency| {
            (0..10_000).filter(|number| rule(share).applies(dependency, class, call(*number))).count()
        };
        assert_eq!(hits(Share::ALL, WorkloadClass::Premium, Dependency::Pricing), 10_000);
        assert_eq!(hits(Share::ALL, WorkloadClass::Standard, Dependency::Pricing), 0);
        assert_eq!(hits(Share::ALL, WorkloadClass::Premium, Dependency::Profile), 0);
        let tenth = hits(Share::from_ratio(0.1), WorkloadClass::Premium, Dependency::Pricing);
        // Binomial: 1,000 expected, deviation 30.
        assert!((850..1_150).contains(&tenth), "{tenth}");
    }

    #[test]
    fn rules_of_other_content_draw_anew_and_the_duration_does_not_matter() {
        let draws = Draws::new(3, 1);
        let half = rule(Share::from_ratio(0.5));
        let other = FaultRule { effect: FaultEffect::Status(13), ..half };
        let timed = FaultRule { duration: Some(Nanos::from_secs(1)), ..half };
        let hit = |rule: &FaultRule, number: u64| {
            rule.applies(
                Dependency::Pricing,
                WorkloadClass::Premium,
                draws.call(Dependency::Pricing, "o", number, "op", 1),
            )
        };
        assert!((0..100).any(|number| hit(&half, number) != hit(&other, number)));
        assert!((0..100).all(|number| hit(&half, number) == hit(&timed, number)));
    }
}
