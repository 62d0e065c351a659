//! Decide: turns a stored row into the profile that callers see, or says why the row cannot be used.
//!
//! Rules:
//! - The display name is the given name and the family name with every run of blanks and control characters made one
//!   space, invisible direction marks removed (they can make one name read as another) and at most
//!   [`DISPLAY_NAME_CHARS_MAX`] characters. Where nothing visible is left, the subject's id stands in: a name is never
//!   empty.
//! - Locale, currency, segment, plan, policy version and home items must be what the store's contract promises. A row
//!   that breaks it is refused whole; showing half a profile would pass a fault on as if it were an answer.

use std::borrow::Cow;

use base::{Reason, Refusal};

/// Longest display name, in characters.
pub const DISPLAY_NAME_CHARS_MAX: usize = 80;
/// Most items on a home page.
pub const HOME_ITEMS_MAX: usize = 8;
/// Longest item id, in bytes.
pub const ITEM_ID_BYTES_MAX: usize = 64;
/// Longest language tag, in bytes: what RFC 5646, section 4.4.1, asks every implementation to hold.
pub const LOCALE_BYTES_MAX: usize = 35;
/// The newest response schema that this service writes.
pub const RESPONSE_SCHEMA_MAX: u32 = 1;
/// Market segments of the contract.
pub const SEGMENTS: [&str; 4] = ["consumer", "small_business", "education", "public_sector"];
/// Commercial plans of the contract.
pub const PLANS: [&str; 4] = ["free", "plus", "pro", "business"];

/// A row as the profile store holds it, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredProfile {
    /// Given name, as entered.
    pub given_name: String,
    /// Family name, as entered.
    pub family_name: String,
    /// BCP 47 language tag.
    pub locale: String,
    /// ISO 4217 alphabetic code.
    pub currency_code: String,
    /// Market segment.
    pub segment: String,
    /// Commercial plan.
    pub plan: String,
    /// Version of the tenant's authorization policy.
    pub policy_version: u64,
    /// Items on the home page, in display order.
    pub home_item_ids: Vec<String>,
}

/// A profile that keeps every promise of the service's contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Never empty, at most [`DISPLAY_NAME_CHARS_MAX`] characters.
    pub display_name: String,
    /// Well-formed BCP 47 language tag.
    pub locale: String,
    /// Three upper-case letters.
    pub currency_code: String,
    /// One of [`SEGMENTS`].
    pub segment: String,
    /// One of [`PLANS`].
    pub plan: String,
    /// At least 1.
    pub policy_version: u64,
    /// Distinct, at most [`HOME_ITEMS_MAX`].
    pub home_item_ids: Vec<String>,
}

/// Checks the response schema that the caller understands; 0 means 1.
///
/// # Errors
/// `InvalidInput` naming `response_schema` when the caller asks for one that this service cannot write.
pub fn check_schema(response_schema: u32) -> Result<(), Refusal> {
    if response_schema > RESPONSE_SCHEMA_MAX {
        return Err(Refusal::invalid(
            "response_schema",
            format!(
                "response_schema: this service writes versions up to {RESPONSE_SCHEMA_MAX}, asked for \
                 {response_schema}"
            ),
        ));
    }
    Ok(())
}

/// Makes the profile of `subject` from its row.
///
/// # Errors
/// `DependencyBug` naming the column when the row breaks the store's contract. The value itself is not repeated.
pub fn resolve(subject: &str, row: StoredProfile) -> Result<Profile, Refusal> {
    ensure(is_language_tag(&row.locale), "locale is not a BCP 47 language tag")?;
    ensure(is_currency_code(&row.currency_code), "currency_code is not an ISO 4217 alphabetic code")?;
    ensure(SEGMENTS.contains(&row.segment.as_str()), "segment is unknown")?;
    ensure(PLANS.contains(&row.plan.as_str()), "plan is unknown")?;
    ensure(row.policy_version >= 1, "policy_version is 0")?;
    ensure(row.home_item_ids.len() <= HOME_ITEMS_MAX, "home_item_ids holds more than 8 items")?;
    ensure(row.home_item_ids.iter().all(|item| is_item_id(item)), "home_item_ids holds a malformed id")?;
    ensure(all_distinct(&row.home_item_ids), "home_item_ids holds an item twice")?;
    Ok(Profile {
        display_name: display_name(&row.given_name, &row.family_name, subject),
        locale: row.locale,
        currency_code: row.currency_code,
        segment: row.segment,
        plan: row.plan,
        policy_version: row.policy_version,
        home_item_ids: row.home_item_ids,
    })
}

fn ensure(holds: bool, fault: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(broken(fault)) }
}

fn broken(fault: &str) -> Refusal {
    Refusal::new(Reason::DependencyBug, Cow::Owned(format!("profile store broke its contract: {fault}")))
}

/// Joins the names for display; `subject` stands in where nothing visible is left.
fn display_name(given: &str, family: &str, subject: &str) -> String {
    let mut name = String::with_capacity(given.len() + 1 + family.len());
    let words = given.split(is_gap).chain(family.split(is_gap));
    let mut chars = 0;
    for word in words {
        let mut separated = name.is_empty();
        for character in word.chars().filter(|character| !is_direction_mark(*character)) {
            let needed = if separated { 1 } else { 2 };
            if chars + needed > DISPLAY_NAME_CHARS_MAX {
                return name;
            }
            if !separated {
                name.push(' ');
                separated = true;
            }
            name.push(character);
            chars += needed;
        }
    }
    if name.chars().all(|character| character == ' ' || is_joiner(character)) {
        return subject.to_owned();
    }
    name
}

fn is_gap(character: char) -> bool {
    character.is_whitespace() || character.is_control()
}

/// Marks that are invisible and change the direction or the width of what is around them.
const fn is_direction_mark(character: char) -> bool {
    matches!(character, '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
}

/// Joiners belong inside names of several scripts, and show nothing by themselves.
const fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200C}' | '\u{200D}')
}

/// The shape of RFC 5646 language tags: a language of 2, 3 or 5 to 8 letters, then subtags of 1 to 8 letters or digits,
/// and no singleton at the end. Whether a subtag is registered is not looked up.
fn is_language_tag(tag: &str) -> bool {
    let mut subtags = tag.split('-');
    let language = subtags.next().unwrap_or_default();
    let language_fits =
        matches!(language.len(), 2 | 3 | 5..=8) && language.bytes().all(|byte| byte.is_ascii_alphabetic());
    let mut last_len = language.len();
    let rest_fits = subtags.all(|subtag| {
        last_len = subtag.len();
        (1..=8).contains(&subtag.len()) && subtag.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    tag.len() <= LOCALE_BYTES_MAX && language_fits && rest_fits && last_len > 1
}

fn is_currency_code(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn is_item_id(id: &str) -> bool {
    (1..=ITEM_ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// At most [`HOME_ITEMS_MAX`] ids, so that comparing every pair is the shortest way.
fn all_distinct(ids: &[String]) -> bool {
    ids.iter().enumerate().all(|(position, id)| !ids[..position].contains(id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row() -> StoredProfile {
        StoredProfile {
            given_name: "Ada".into(),
            family_name: "Lovelace".into(),
            locale: "en-GB".into(),
            currency_code: "GBP".into(),
            segment: "consumer".into(),
            plan: "pro".into(),
            policy_version: 7,
            home_item_ids: vec!["item-0001".into(), "item-0002".into()],
        }
    }

    fn fault(change: impl FnOnce(&mut StoredProfile)) -> String {
        let mut broken = row();
        change(&mut broken);
        let refusal = resolve("user-00001", broken).expect_err("the row breaks the contract");
        assert_eq!(refusal.reason(), Reason::DependencyBug);
        refusal.message().to_owned()
    }

    #[test]
    fn a_sound_row_becomes_a_profile() {
        let profile = resolve("user-00001", row()).expect("sound");
        assert_eq!(profile.display_name, "Ada Lovelace");
        assert_eq!(profile.locale, "en-GB");
        assert_eq!(profile.policy_version, 7);
        assert_eq!(profile.home_item_ids, ["item-0001", "item-0002"]);
    }

    #[test]
    fn names_are_trimmed_collapsed_and_never_empty() {
        let cases = [
            ("  Ada ", "\tKing  Lovelace\n", "Ada King Lovelace"),
            ("", "Lovelace", "Lovelace"),
            ("Ada", "", "Ada"),
            ("", " \t ", "user-00001"),
            ("\u{202E}\u{200B}", "\u{2066}", "user-00001"),
            ("\u{200D}", "\u{200C}", "user-00001"),
            ("A\u{202E}da", "Love\u{0}lace", "Ada Love lace"),
            ("می\u{200C}خواهم", "", "می\u{200C}خواهم"),
            ("李", "小龍", "李 小龍"),
        ];
        for (given, family, expected) in cases {
            assert_eq!(display_name(given, family, "user-00001"), expected, "{given:?} {family:?}");
        }
    }

    #[test]
    fn a_name_is_cut_at_its_limit_and_not_one_before() {
        let given = "é".repeat(DISPLAY_NAME_CHARS_MAX);
        assert_eq!(display_name(&given, "", "s"), given);
        assert_eq!(display_name(&given, "x", "s"), given);
        // A blank that nothing could follow is not written.
        let almost = "é".repeat(DISPLAY_NAME_CHARS_MAX - 1);
        assert_eq!(display_name(&almost, "x", "s"), almost);
    }

    #[test]
    fn a_row_that_breaks_the_contract_is_refused_by_column() {
        for locale in
            ["", "e", "en_GB", "en-", "-en", "en--GB", "en-GB-u", "engl", "en-GB-toolongsubtag", "é"]
        {
            assert!(fault(|row| row.locale = locale.into()).contains("locale"), "{locale:?}");
        }
        assert!(fault(|row| row.locale = format!("en{}", "-abcdefg".repeat(5))).contains("locale"));
        for currency in ["", "eur", "EU", "EURO", "€UR"] {
            assert!(
                fault(|row| row.currency_code = currency.into()).contains("currency_code"),
                "{currency:?}"
            );
        }
        assert!(fault(|row| row.segment = "Consumer".into()).contains("segment"));
        assert!(fault(|row| row.plan = "gold".into()).contains("plan"));
        assert!(fault(|row| row.policy_version = 0).contains("policy_version"));
        assert!(fault(|row| row.home_item_ids[0] = "item 1".into()).contains("malformed"));
        assert!(fault(|row| row.home_item_ids[0] = String::new()).contains("malformed"));
        assert!(fault(|row| row.home_item_ids[1] = "item-0001".into()).contains("twice"));
    }

    #[test]
    fn well_formed_language_tags_pass() {
        for locale in ["en", "de-DE", "zh-Hant-TW", "sr-Latn-RS", "es-419", "de-CH-1996", "en-u-ca-gregory"] {
            let tagged = StoredProfile { locale: locale.into(), ..row() };
            assert!(resolve("s", tagged).is_ok(), "{locale}");
        }
    }

    #[test]
    fn the_page_holds_eight_items_and_not_nine() {
        let items = |count: usize| (0..count).map(|at| format!("item-{at:04}")).collect::<Vec<_>>();
        let full = StoredProfile { home_item_ids: items(HOME_ITEMS_MAX), ..row() };
        assert_eq!(resolve("s", full).expect("at the limit").home_item_ids.len(), HOME_ITEMS_MAX);
        assert!(fault(|row| row.home_item_ids = items(HOME_ITEMS_MAX + 1)).contains("more than 8"));
        let empty = StoredProfile { home_item_ids: vec![], ..row() };
        assert!(resolve("s", empty).is_ok());
    }

    #[test]
    fn an_unknown_schema_is_named() {
        assert_eq!(check_schema(0), Ok(()));
        assert_eq!(check_schema(1), Ok(()));
        let refusal = check_schema(2).expect_err("not written yet");
        assert_eq!((refusal.reason(), refusal.field()), (Reason::InvalidInput, Some("response_schema")));
    }

    proptest! {
        #[test]
        fn any_names_give_a_clean_display_name(given in "\\PC{0,60}|[ \\t\u{202E}a]{0,90}", family in any::<String>()) {
            let name = display_name(&given, &family, "user-00001");
            prop_assert!(!name.is_empty());
            prop_assert!(name.chars().count() <= DISPLAY_NAME_CHARS_MAX);
            prop_assert_eq!(name.trim(), name.as_str());
            prop_assert!(!name.contains("  "));
            prop_assert!(!name.chars().any(|c| c.is_control() || is_direction_mark(c)));
            // Applying the rule to its own result changes nothing.
            prop_assert_eq!(display_name(&name, "", "other"), name);
        }

        #[test]
        fn no_row_panics(locale in any::<String>(), items in proptest::collection::vec(any::<String>(), 0..10)) {
            let _ = resolve("s", StoredProfile { locale, home_item_ids: items, ..row() });
        }
    }
}
