//! Names: how the data set is named. Public: load, README and tests address tenants, subjects and items by these names,
//! and the emulator answers for exactly these.

/// Tenants of the data set: `tenant-000` to `tenant-199`.
pub const TENANTS: u32 = 200;
/// Subjects of every tenant: `user-00000` to `user-09999`.
pub const SUBJECTS: u32 = 10_000;
/// Items of the catalogue: `item-0000` to `item-1999`.
pub const ITEMS: u32 = 2_000;
/// Regions.
pub const REGIONS: [&str; 5] = ["eu-west", "eu-north", "us-east", "us-west", "ap-south"];
/// Plans, cheapest first.
pub const PLANS: [&str; 4] = ["free", "plus", "pro", "business"];
/// Market segments.
pub const SEGMENTS: [&str; 4] = ["consumer", "small_business", "education", "public_sector"];
/// Currencies, ISO 4217 alphabetic codes.
pub const CURRENCIES: [&str; 5] = ["EUR", "USD", "GBP", "JPY", "KWD"];
/// The surface that experiments run on.
pub const HOME_SURFACE: &str = "home";

/// The name of a tenant.
pub fn tenant(index: u32) -> String {
    format!("tenant-{index:03}")
}

/// The name of a subject.
pub fn subject(index: u32) -> String {
    format!("user-{index:05}")
}

/// The name of an item.
pub fn item(index: u32) -> String {
    format!("item-{index:04}")
}

/// The index of a tenant; `None` when the data set has no such tenant.
pub fn tenant_index(name: &str) -> Option<u32> {
    index(name, "tenant-", 3, TENANTS)
}

/// The index of a subject; `None` when no tenant has such a subject.
pub fn subject_index(name: &str) -> Option<u32> {
    index(name, "user-", 5, SUBJECTS)
}

/// The index of an item; `None` when the catalogue has no such item.
pub fn item_index(name: &str) -> Option<u32> {
    index(name, "item-", 4, ITEMS)
}

fn index(name: &str, prefix: &str, width: usize, count: u32) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let plain = digits.len() == width && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|index| plain && *index < count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_nothing_else_does() {
        for at in [0, 1, TENANTS - 1] {
            assert_eq!(tenant_index(&tenant(at)), Some(at));
        }
        for at in [0, 1, SUBJECTS - 1] {
            assert_eq!(subject_index(&subject(at)), Some(at));
        }
        for at in [0, 1, ITEMS - 1] {
            assert_eq!(item_index(&item(at)), Some(at));
        }
        assert_eq!(
            (tenant(7), subject(42), item(5)),
            ("tenant-007".into(), "user-00042".into(), "item-0005".into())
        );
        for bad in
            ["tenant-200", "tenant-1", "tenant-0001", "tenant-+01", "Tenant-001", "tenant-", "", "tenant-٠٠١"]
        {
            assert_eq!(tenant_index(bad), None, "{bad}");
        }
        assert_eq!(subject_index("user-10000"), None);
        assert_eq!(item_index("item-2000"), None);
    }
}
