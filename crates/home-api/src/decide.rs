//! Decide: the pure rules of the page. What makes a core complete, and which marker an optional section gets.

use base::{Dependency, Reason, Refusal};
use control::degradation::{Marker, Omission};

use crate::page::{Inventory, Pricing, Profile};

/// How an optional branch ended, before it is known what it means for the page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Branch<T> {
    /// It answered, with something or with nothing.
    Answered(Option<T>),
    /// Its time ran out.
    TimedOut,
    /// It was refused for lack of capacity.
    Overloaded,
    /// It failed.
    Failed,
}

/// The marker of a branch that was started, and the section if there is one.
pub(crate) fn settle_optional<T>(branch: Branch<T>) -> (Marker, Option<T>) {
    match branch {
        Branch::Answered(Some(section)) => (Marker::Present, Some(section)),
        Branch::Answered(None) => (Marker::Empty, None),
        Branch::TimedOut => (Marker::Omitted(Omission::Timeout), None),
        Branch::Overloaded => (Marker::Omitted(Omission::Overload), None),
        Branch::Failed => (Marker::Omitted(Omission::DependencyError), None),
    }
}

/// A core is complete when it is about the authenticated subject and every item of the page has its stock and its price,
/// in page order. Anything less is an error of the branch at fault, never an empty value.
pub(crate) fn check_core(
    asked: (&str, &str),
    profile: &Profile,
    inventory: &Inventory,
    pricing: &Pricing,
) -> Result<(), Refusal> {
    if (profile.tenant.as_str(), profile.subject.as_str()) != asked {
        return Err(broken(Dependency::Profile, "answered for another subject"));
    }
    let stocked = inventory.items.iter().map(|item| &item.item_id);
    if !stocked.eq(&profile.home_item_ids) {
        return Err(broken(Dependency::Inventory, "did not answer for every item"));
    }
    let priced = pricing.lines.iter().map(|line| &line.item_id);
    if !priced.eq(&profile.home_item_ids) {
        return Err(broken(Dependency::Pricing, "did not answer for every item"));
    }
    if pricing
        .lines
        .iter()
        .any(|line| line.net_minor_units < 0 || line.net_minor_units > line.list_minor_units)
    {
        return Err(broken(Dependency::Pricing, "answered with an impossible price"));
    }
    Ok(())
}

/// A mandatory dependency answered, and the answer cannot be used.
pub(crate) fn broken(dependency: Dependency, what: &'static str) -> Refusal {
    Refusal::new(Reason::DependencyUnavailable, format!("{dependency} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Availability, PriceLine, StockStatus};

    fn core() -> (Profile, Inventory, Pricing) {
        let ids = ["item-0001", "item-0002"];
        let profile = Profile {
            tenant: "tenant-001".into(),
            subject: "user-00001".into(),
            display_name: "Ada".into(),
            locale: "en-GB".into(),
            segment: "consumer".into(),
            plan: "plus".into(),
            currency_code: "GBP".into(),
            policy_version: 3,
            home_item_ids: ids.map(String::from).to_vec(),
        };
        let items = ids.map(|id| Availability {
            item_id: id.into(),
            available_units: 1,
            status: StockStatus::LowStock,
        });
        let lines = ids.map(|id| PriceLine {
            item_id: id.into(),
            list_minor_units: 100,
            net_minor_units: 90,
            discount_basis_points: 1_000,
        });
        (
            profile,
            Inventory { items: items.to_vec(), as_of_unix_ms: 0 },
            Pricing { currency_code: "GBP".into(), lines: lines.to_vec() },
        )
    }

    const ASKED: (&str, &str) = ("tenant-001", "user-00001");

    #[test]
    fn a_complete_core_passes() {
        let (profile, inventory, pricing) = core();
        assert_eq!(check_core(ASKED, &profile, &inventory, &pricing), Ok(()));
    }

    /// Breaks a core.
    type Fault = fn(&mut Profile, &mut Inventory, &mut Pricing);

    #[test]
    fn every_gap_names_its_branch() {
        let faults: [(&str, Fault); 6] = [
            ("profile", |profile, _, _| profile.subject = "user-00002".into()),
            ("inventory", |_, inventory, _| drop(inventory.items.pop())),
            ("inventory", |_, inventory, _| inventory.items.reverse()),
            ("pricing", |_, _, pricing| drop(pricing.lines.pop())),
            ("pricing", |_, _, pricing| pricing.lines[0].net_minor_units = -1),
            ("pricing", |_, _, pricing| pricing.lines[0].net_minor_units = 101),
        ];
        for (name, fault) in faults {
            let (mut profile, mut inventory, mut pricing) = core();
            fault(&mut profile, &mut inventory, &mut pricing);
            let refusal = check_core(ASKED, &profile, &inventory, &pricing).expect_err("a gap");
            assert_eq!(refusal.reason(), Reason::DependencyUnavailable);
            assert!(refusal.message().starts_with(name), "{refusal}");
        }
    }

    #[test]
    fn absent_empty_and_omitted_are_three_things() {
        assert_eq!(settle_optional(Branch::Answered(Some(1))), (Marker::Present, Some(1)));
        assert_eq!(settle_optional::<u8>(Branch::Answered(None)), (Marker::Empty, None));
        assert_eq!(settle_optional::<u8>(Branch::TimedOut), (Marker::Omitted(Omission::Timeout), None));
        assert_eq!(settle_optional::<u8>(Branch::Overloaded), (Marker::Omitted(Omission::Overload), None));
        assert_eq!(settle_optional::<u8>(Branch::Failed), (Marker::Omitted(Omission::DependencyError), None));
    }
}
