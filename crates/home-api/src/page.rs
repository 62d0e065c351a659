//! Page: what the service answers, in its own terms. The JSON face is this, serialized; the gRPC face mirrors it.

use base::Nanos;
use control::degradation::Marker;
use serde::Serialize;

/// The assembled page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Page {
    /// True in every page; a page without its core is an error.
    pub(crate) core_complete: bool,
    pub(crate) profile: Profile,
    pub(crate) entitlement: Entitlement,
    pub(crate) inventory: Inventory,
    pub(crate) pricing: Pricing,
    pub(crate) experiments: Vec<Arm>,
    pub(crate) optional: Optional,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recommendations: Option<Recommendations>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reputation: Option<Reputation>,
    pub(crate) request_id: String,
    pub(crate) policy_generation: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Profile {
    pub(crate) tenant: String,
    pub(crate) subject: String,
    pub(crate) display_name: String,
    pub(crate) locale: String,
    pub(crate) segment: String,
    pub(crate) plan: String,
    /// What later hops need and the page does not show.
    #[serde(skip)]
    pub(crate) currency_code: String,
    #[serde(skip)]
    pub(crate) policy_version: u64,
    #[serde(skip)]
    pub(crate) home_item_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entitlement {
    pub(crate) authority: Authority,
    pub(crate) policy_version: u64,
    /// For the comparison; the page does not show it.
    #[serde(skip)]
    pub(crate) revocation_epoch: u64,
    pub(crate) claims: Vec<String>,
}

/// Where claims came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Authority {
    Call,
    Summary,
}

impl Authority {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Summary => "summary",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Inventory {
    pub(crate) items: Vec<Availability>,
    pub(crate) as_of_unix_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Availability {
    pub(crate) item_id: String,
    pub(crate) available_units: u32,
    pub(crate) status: StockStatus,
}

#[expect(clippy::enum_variant_names, reason = "the names on both faces: in_stock, low_stock, out_of_stock")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StockStatus {
    InStock,
    LowStock,
    OutOfStock,
}

impl StockStatus {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::InStock => "in_stock",
            Self::LowStock => "low_stock",
            Self::OutOfStock => "out_of_stock",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pricing {
    pub(crate) currency_code: String,
    pub(crate) lines: Vec<PriceLine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PriceLine {
    pub(crate) item_id: String,
    pub(crate) list_minor_units: i64,
    pub(crate) net_minor_units: i64,
    pub(crate) discount_basis_points: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Arm {
    pub(crate) experiment_id: String,
    pub(crate) experiment_version: u32,
    pub(crate) variant: String,
    pub(crate) event_id: String,
    pub(crate) effect: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Optional {
    #[serde(serialize_with = "marker")]
    pub(crate) recommendations: Marker,
    #[serde(serialize_with = "marker")]
    pub(crate) reputation: Marker,
}

/// A marker by the text that both faces use.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde prescribes the signature")]
fn marker<S: serde::Serializer>(marker: &Marker, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(marker.as_str())
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Recommendations {
    pub(crate) items: Vec<RankedItem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RankedItem {
    pub(crate) item_id: String,
    pub(crate) score_micros: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Reputation {
    pub(crate) score: f64,
    pub(crate) review_count: u64,
    pub(crate) lower_bound: f64,
    pub(crate) upper_bound: f64,
}

/// Where the time of one branch went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Until the call was on its way: waiting for a permit or a connection.
    pub(crate) wait: Nanos,
    /// From sending to the answer.
    pub(crate) service: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_spelt_alike_on_both_faces() {
        for marker in Marker::ALL {
            let optional = Optional { recommendations: marker, reputation: Marker::Empty };
            let expected = serde_json::json!({ "recommendations": marker.as_str(), "reputation": "empty" });
            assert_eq!(serde_json::json!(optional), expected);
        }
        for stock in [StockStatus::InStock, StockStatus::LowStock, StockStatus::OutOfStock] {
            assert_eq!(serde_json::json!(stock), stock.as_str());
        }
        for authority in [Authority::Call, Authority::Summary] {
            assert_eq!(serde_json::json!(authority), authority.as_str());
        }
    }
}
