//! Marks: per tenant the highest policy version and revocation epoch that were seen. A summary below either is refused, after
//! a restart as well, so that an old one that is still validly signed does not bring back what was taken away.
//!
//! Marks only rise. What would raise one by more than can be right is refused, since believing it would shut out everything
//! that comes after.

use std::collections::HashMap;

use base::Tenant;

use crate::Rejection;

/// Most tenants that are remembered. Beyond it a new tenant's summaries are checked against no mark, which is counted.
pub const TENANTS_MAX: usize = 65_536;
/// Highest policy version and revocation epoch that can be right.
pub const VALUE_MAX: u64 = 1 << 48;
/// Most that one summary may raise a known mark by.
pub const JUMP_MAX: u64 = 1 << 20;

/// What a tenant must not go back behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Highest policy version of a summary that was accepted.
    pub policy_version: u64,
    /// Highest revocation epoch that was heard of.
    pub revocation_epoch: u64,
}

impl Mark {
    /// Whether a summary of these values is not behind this mark, nor too far ahead of it.
    ///
    /// # Errors
    /// [`Rejection::VersionJump`], [`Rejection::OutdatedVersion`] or [`Rejection::Revoked`].
    pub fn admits(&self, policy_version: u64, revocation_epoch: u64) -> Result<(), Rejection> {
        let far =
            |value: u64, mark: u64| value > VALUE_MAX || (mark > 0 && value.saturating_sub(mark) > JUMP_MAX);
        if far(policy_version, self.policy_version) || far(revocation_epoch, self.revocation_epoch) {
            Err(Rejection::VersionJump)
        } else if policy_version < self.policy_version {
            Err(Rejection::OutdatedVersion)
        } else if revocation_epoch < self.revocation_epoch {
            Err(Rejection::Revoked)
        } else {
            Ok(())
        }
    }

    /// The higher of both, value by value.
    pub fn max(self, other: Self) -> Self {
        Self {
            policy_version: self.policy_version.max(other.policy_version),
            revocation_epoch: self.revocation_epoch.max(other.revocation_epoch),
        }
    }
}

/// The marks of all tenants.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    by_tenant: HashMap<Tenant, Mark>,
    forgotten: u64,
}

impl Marks {
    /// The marks of an earlier process. Of a tenant that is listed twice the higher counts.
    pub fn restored(marks: impl IntoIterator<Item = (Tenant, Mark)>) -> Self {
        let mut restored = Self::default();
        for (tenant, mark) in marks {
            restored.raise(&tenant, mark);
        }
        restored
    }

    /// The mark of a tenant; all zero when nothing was seen.
    pub fn of(&self, tenant: &Tenant) -> Mark {
        self.by_tenant.get(tenant).copied().unwrap_or_default()
    }

    /// Raises a mark. Whether it rose, and so has to be persisted.
    pub fn raise(&mut self, tenant: &Tenant, to: Mark) -> bool {
        if let Some(mark) = self.by_tenant.get_mut(tenant) {
            let raised = mark.max(to);
            return std::mem::replace(mark, raised) != raised;
        }
        if self.by_tenant.len() >= TENANTS_MAX {
            self.forgotten = self.forgotten.saturating_add(1);
            return false;
        }
        self.by_tenant.insert(tenant.clone(), to);
        to != Mark::default()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Tenant, &Mark)> {
        self.by_tenant.iter()
    }

    /// Whether what is heard of a tenant is remembered: it has a mark, or there is room for one.
    pub fn covers(&self, tenant: &Tenant) -> bool {
        self.by_tenant.len() < TENANTS_MAX || self.by_tenant.contains_key(tenant)
    }

    /// How often there was no room for a tenant.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}
