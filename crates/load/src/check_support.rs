//! Check, tested: a sound answer to begin with.

use wire::home::v2::{
    Entitlement, ExperimentArm, GetHomeResponse, Inventory, ItemAvailability, Marker, OptionalSections,
    PriceLine, Pricing, Profile, RankedItem, Recommendations,
};

/// A sound answer to `tenant-001`, `user-00001` and `peak-1`.
pub(crate) fn sound() -> GetHomeResponse {
    let arm = |id: &str, variant: &str| ExperimentArm {
        experiment_id: id.to_owned(),
        experiment_version: 1,
        variant: variant.to_owned(),
        event_id: format!("event-of-{id}"),
        effect: "committed".to_owned(),
    };
    let item = |id: &str, units: u32, status: &str| ItemAvailability {
        item_id: id.to_owned(),
        available_units: units,
        status: status.to_owned(),
    };
    let line = |id: &str, list: i64, net: i64| PriceLine {
        item_id: id.to_owned(),
        list_minor_units: list,
        net_minor_units: net,
        discount_basis_points: 0,
    };
    GetHomeResponse {
        core_complete: true,
        profile: Some(Profile {
            tenant: "tenant-001".to_owned(),
            subject: "user-00001".to_owned(),
            display_name: "Ada L.".to_owned(),
            locale: "en-GB".to_owned(),
            segment: "consumer".to_owned(),
            plan: "plus".to_owned(),
        }),
        entitlement: Some(Entitlement {
            authority: "call".to_owned(),
            policy_version: 3,
            claims: vec!["a".to_owned(), "b".to_owned()],
        }),
        inventory: Some(Inventory {
            items: vec![item("item-0001", 3, "in_stock"), item("item-0002", 0, "out_of_stock")],
            as_of_unix_ms: 1,
        }),
        pricing: Some(Pricing {
            currency_code: "EUR".to_owned(),
            lines: vec![line("item-0001", 500, 450), line("item-0002", 100, 100)],
        }),
        experiments: vec![arm("layout", "a"), arm("tone", "b")],
        optional: Some(OptionalSections {
            recommendations: Marker::Present.into(),
            reputation: Marker::Empty.into(),
        }),
        recommendations: Some(Recommendations {
            items: vec![RankedItem { item_id: "item-0009".to_owned(), score_micros: 9 }],
        }),
        reputation: None,
        request_id: "peak-1".to_owned(),
        policy_generation: 1,
    }
}
