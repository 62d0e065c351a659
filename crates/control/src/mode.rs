//! Mode: whether a mechanism applies to a request (DESIGN 3.9), so that one causal change at a time can be rolled out,
//! measured and reversed.
//!
//! A mechanism is `off` (computes nothing), in `shadow` (computes what it would do and records it beside what was done,
//! and changes nothing) or `on`; and it has a scope: a share of the subjects, some classes, some regions. A request is in
//! scope when all three hold.
//!
//! The share is of subjects and not of requests. A subject's position is a keyed hash of tenant and subject, the same in
//! every process and after every restart; it is in the share when the position lies below it. So raising a share only
//! adds subjects and lowering it only takes some away. The key is the mechanism's own: otherwise the same subjects would
//! be the first in every rollout, and no mechanism could be told from the others.

use std::fmt;

use base::{
    Identity, Region, Subject, Tenant, WorkloadClass,
    mix::{below, fold_bytes},
};

/// Most regions that a scope may name.
pub const REGIONS_MAX: usize = 64;

/// What a mechanism does where it is in scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// Decides and records, and changes nothing.
    Shadow,
    /// Decides and acts.
    On,
}

impl Mode {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Shadow, Self::On];

    /// The name used in files, metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Shadow => "shadow",
            Self::On => "on",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A share of all subjects, in parts per 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// Nobody.
    pub const NONE: Self = Self(0);
    /// Everybody.
    pub const ALL: Self = Self(10_000);

    /// So many parts per 10,000; `None` above all of them.
    pub const fn per_10_000(parts: u16) -> Option<Self> {
        if parts <= Self::ALL.0 { Some(Self(parts)) } else { None }
    }

    /// Parts per 10,000.
    pub const fn parts(self) -> u16 {
        self.0
    }
}

/// A set of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes([bool; WorkloadClass::ALL.len()]);

impl Classes {
    /// Every class.
    pub const ALL: Self = Self([true; WorkloadClass::ALL.len()]);

    /// Those and no others; none of them gives the empty set.
    pub fn only(classes: impl IntoIterator<Item = WorkloadClass>) -> Self {
        let mut set = [false; WorkloadClass::ALL.len()];
        for class in classes {
            set[class.index()] = true;
        }
        Self(set)
    }

    /// Whether the class is one of them.
    pub const fn contains(&self, class: WorkloadClass) -> bool {
        self.0[class.index()]
    }
}

/// A set of regions. The default is every region, of which the set has no list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions(Option<Vec<Region>>);

/// A scope names more than [`REGIONS_MAX`] regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRegions;

impl fmt::Display for TooManyRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {REGIONS_MAX} regions")
    }
}

impl std::error::Error for TooManyRegions {}

impl Regions {
    /// Every region.
    pub const ALL: Self = Self(None);

    /// Those and no others; none of them gives the empty set.
    ///
    /// # Errors
    /// [`TooManyRegions`] when more than [`REGIONS_MAX`] different ones are named.
    pub fn only(regions: impl IntoIterator<Item = Region>) -> Result<Self, TooManyRegions> {
        let mut set: Vec<Region> = Vec::new();
        for region in regions {
            if set.contains(&region) {
                continue;
            }
            if set.len() == REGIONS_MAX {
                return Err(TooManyRegions);
            }
            set.push(region);
        }
        Ok(Self(Some(set)))
    }

    /// Those that the set names; `None` for every region.
    pub fn named(&self) -> Option<&[Region]> {
        self.0.as_deref()
    }

    /// Whether the region is one of them.
    pub fn contains(&self, region: &Region) -> bool {
        self.0.as_ref().is_none_or(|set| set.contains(region))
    }
}

/// Whom a mechanism concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// This share of the subjects.
    pub share: Share,
    /// These classes.
    pub classes: Classes,
    /// These regions.
    pub regions: Regions,
}

impl Scope {
    /// Everybody.
    pub const ALL: Self = Self { share: Share::ALL, classes: Classes::ALL, regions: Regions::ALL };
}

/// One mechanism's mode and scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    mode: Mode,
    scope: Scope,
    key: u64,
}

impl Rollout {
    /// Of the mechanism of that name; the name is the key of its subjects' positions, so it must not change.
    pub fn new(mechanism: &str, mode: Mode, scope: Scope) -> Self {
        Self { mode, scope, key: fold_bytes(0, mechanism.as_bytes()) }
    }

    /// What it does where it is in scope.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whom it concerns.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether it acts on every request there can be.
    pub fn is_everywhere(&self) -> bool {
        self.mode == Mode::On && self.scope == Scope::ALL
    }

    /// What the mechanism does for a request.
    pub fn applies(&self, identity: &Identity) -> Decision {
        // Without a mode nothing is computed at all.
        Decision { mode: self.mode, in_scope: self.mode != Mode::Off && self.covers(identity) }
    }

    /// Whether a request is in the scope, whatever the mode.
    pub fn covers(&self, identity: &Identity) -> bool {
        // The hash last: the other two are cheaper.
        self.scope.classes.contains(identity.class)
            && self.scope.regions.contains(&identity.region)
            && self.position(&identity.tenant, &identity.subject) < self.scope.share.parts()
    }

    /// Where a subject stands in this mechanism's rollout, from 0 to 9,999. A share takes the lowest.
    pub fn position(&self, tenant: &Tenant, subject: &Subject) -> u16 {
        let bits = fold_bytes(fold_bytes(self.key, tenant.as_str().as_bytes()), subject.as_str().as_bytes());
        below(bits, u64::from(Share::ALL.parts())) as u16
    }
}

/// What a mechanism does for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The mechanism's mode, whether or not the request is in scope.
    pub mode: Mode,
    /// Whether the request is in scope; never when the mode is [`Mode::Off`].
    pub in_scope: bool,
}

impl Decision {
    /// Whether the mechanism decides at all: in shadow, or on.
    pub const fn computes(self) -> bool {
        self.in_scope && !matches!(self.mode, Mode::Off)
    }

    /// Whether what it decides is done.
    pub const fn acts(self) -> bool {
        self.in_scope && matches!(self.mode, Mode::On)
    }

    /// What is done, of what is done `without` the mechanism and what it `intended`. Only a mechanism that acts makes a
    /// difference; what it intended in shadow is for the record.
    pub fn choose<T>(self, without: T, intended: T) -> T {
        if self.acts() { intended } else { without }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn identity(tenant: u32, subject: u32, class: WorkloadClass, region: &str) -> Identity {
        Identity {
            tenant: Tenant::parse(&format!("tenant-{tenant:03}")).expect("well formed"),
            subject: Subject::parse(&format!("user-{subject:05}")).expect("well formed"),
            class,
            region: Region::parse(region).expect("well formed"),
        }
    }

    fn scope(parts: u16) -> Scope {
        Scope { share: Share::per_10_000(parts).expect("at most all"), ..Scope::ALL }
    }

    fn in_scope(rollout: &Rollout, identity: &Identity) -> bool {
        rollout.applies(identity).in_scope
    }

    #[test]
    fn a_share_is_bounded() {
        assert_eq!(Share::per_10_000(10_000), Some(Share::ALL));
        assert_eq!(Share::per_10_000(10_001), None);
        assert_eq!(Share::per_10_000(0), Some(Share::NONE));
    }

    #[test]
    fn a_request_is_in_scope_when_share_class_and_region_all_hold() {
        let west = Region::parse("eu-west").expect("well formed");
        let scope = Scope {
            classes: Classes::only([WorkloadClass::Premium, WorkloadClass::Enterprise]),
            regions: Regions::only([west]).expect("one"),
            ..Scope::ALL
        };
        let rollout = Rollout::new("coalescing", Mode::On, scope.clone());
        assert!(in_scope(&rollout, &identity(0, 0, WorkloadClass::Premium, "eu-west")));
        assert!(!in_scope(&rollout, &identity(0, 0, WorkloadClass::Standard, "eu-west")));
        assert!(!in_scope(&rollout, &identity(0, 0, WorkloadClass::Premium, "eu-north")));
        for nobody in [
            Scope { share: Share::NONE, ..scope.clone() },
            Scope { classes: Classes::only([]), ..scope.clone() },
            Scope { regions: Regions::only([]).expect("none"), ..scope },
        ] {
            let rollout = Rollout::new("coalescing", Mode::On, nobody);
            assert!(!in_scope(&rollout, &identity(0, 0, WorkloadClass::Premium, "eu-west")));
        }
    }

    #[test]
    fn only_what_is_on_changes_anything() {
        let someone = identity(3, 14, WorkloadClass::Standard, "eu-west");
        for (mode, computes, acts) in
            [(Mode::Off, false, false), (Mode::Shadow, true, false), (Mode::On, true, true)]
        {
            let decision = Rollout::new("admission", mode, Scope::ALL).applies(&someone);
            assert_eq!((decision.mode, decision.computes(), decision.acts()), (mode, computes, acts));
            assert_eq!(decision.in_scope, mode != Mode::Off);
            assert_eq!(decision.choose("without", "intended") == "intended", acts);
            let outside = Rollout::new("admission", mode, scope(0)).applies(&someone);
            assert!(!outside.computes() && !outside.acts());
            assert_eq!(Mode::parse(mode.as_str()), Some(mode));
        }
        assert_eq!(Mode::parse("On"), None);
    }

    #[test]
    fn regions_are_bounded() {
        let region = |n: usize| Region::parse(&format!("region-{n}")).expect("well formed");
        assert!(Regions::only((0..REGIONS_MAX).map(region)).is_ok());
        assert!(
            Regions::only((0..REGIONS_MAX).chain(0..REGIONS_MAX).map(region)).is_ok(),
            "named twice is one"
        );
        assert_eq!(Regions::only((0..=REGIONS_MAX).map(region)), Err(TooManyRegions));
    }

    /// A restart, another process or another release must find each subject where it was. The figures come from a second
    /// implementation of the hash, written in another language.
    #[test]
    fn positions_are_pinned() {
        let rollout = Rollout::new("coalescing", Mode::On, Scope::ALL);
        let positions = [(0, 0), (0, 1), (199, 9_999)].map(|(tenant, subject)| {
            let someone = identity(tenant, subject, WorkloadClass::Standard, "eu-west");
            rollout.position(&someone.tenant, &someone.subject)
        });
        assert_eq!(positions, [5_783, 4_942, 9_520]);
        let first = identity(0, 0, WorkloadClass::Standard, "eu-west");
        assert!(
            !in_scope(&Rollout::new("coalescing", Mode::On, scope(5_783)), &first),
            "a share takes those below"
        );
        assert!(in_scope(&Rollout::new("coalescing", Mode::On, scope(5_784)), &first));
    }

    #[test]
    fn a_share_is_about_its_size_and_mechanisms_do_not_favour_the_same_subjects() {
        let first = Rollout::new("coalescing", Mode::On, scope(1_000));
        let second = Rollout::new("degradation", Mode::On, scope(1_000));
        let (mut in_first, mut in_both) = (0, 0);
        for subject in 0..20_000 {
            let someone = identity(subject / 100, subject % 100, WorkloadClass::Standard, "eu-west");
            let first = in_scope(&first, &someone);
            in_first += u32::from(first);
            in_both += u32::from(first && in_scope(&second, &someone));
        }
        // 2,000 and 200 expected; the bounds are five standard deviations away.
        assert!((1_788..=2_212).contains(&in_first), "{in_first}");
        assert!((130..=270).contains(&in_both), "{in_both}");
    }

    proptest! {
        #[test]
        fn raising_a_share_only_adds_subjects(
            tenant in 0_u32..200, subject in 0_u32..10_000, a in 0_u16..=10_000, b in 0_u16..=10_000,
        ) {
            let someone = identity(tenant, subject, WorkloadClass::Premium, "us-east");
            let at = |parts| in_scope(&Rollout::new("admission", Mode::Shadow, scope(parts)), &someone);
            prop_assert!(!at(a.min(b)) || at(a.max(b)));
            prop_assert!(at(10_000) && !at(0));
        }

        /// The share is of subjects: the same one is in or out whatever else its requests say.
        #[test]
        fn a_subject_is_in_or_out_as_a_whole(
            tenant in 0_u32..200, subject in 0_u32..10_000, parts in 0_u16..=10_000,
        ) {
            let rollout = Rollout::new("admission", Mode::On, scope(parts));
            let answers: std::collections::BTreeSet<_> = WorkloadClass::ALL
                .into_iter()
                .flat_map(|class| ["eu-west", "ap-south"].map(|region| identity(tenant, subject, class, region)))
                .map(|someone| in_scope(&rollout, &someone))
                .collect();
            prop_assert_eq!(answers.len(), 1);
        }
    }
}
