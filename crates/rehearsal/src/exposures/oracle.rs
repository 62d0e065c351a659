//! Oracle: what a row has to be, from the rules as they are written down and not from the code that follows them.
//!
//! Event ids and digests are made here from their layout (fields preceded by their length; UUID of version 5, SHA-256).
//! Arms are chosen by the logarithmic method in floating point, where the service works in fixed point. What both share is
//! the keyed hash in `base`, on which every draw of the suite rests, and whose values its own tests pin, and the
//! libraries for SHA-256 and for UUIDs.

use base::mix::fold_bytes;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Row, catalogue::Experiment};

/// Namespace of event ids.
const NAMESPACE: Uuid = Uuid::from_u128(0x28c4_5387_10d0_4479_a021_6187_a012_93b7);
/// What the digest of every body begins with.
const BODY_DOMAIN: &[u8] = b"mercury.experiment.exposure.body.v1";
/// What the hash of every allocation begins with.
const SALT: u64 = u64::from_be_bytes(*b"mercury.");
/// Two bids that differ by less, relative to their size, are too close for floating point to tell.
const TIE: f64 = 1e-9;

/// What makes an event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The subject.
    pub subject: &'a str,
    /// The experiment.
    pub experiment_id: &'a str,
    /// Version of its definition.
    pub experiment_version: u32,
    /// The arm.
    pub variant: &'a str,
    /// The logical operation.
    pub request_id: &'a str,
}

impl<'a> Event<'a> {
    /// The event of a row; `None` when its version is no version.
    pub fn of(row: &'a Row) -> Option<Self> {
        Some(Self {
            tenant: &row.tenant,
            subject: &row.subject,
            experiment_id: &row.experiment_id,
            experiment_version: u32::try_from(row.experiment_version).ok()?,
            variant: &row.variant,
            request_id: &row.request_id,
        })
    }

    /// Its id.
    pub fn id(&self) -> [u8; 16] {
        *Uuid::new_v5(&NAMESPACE, &self.bytes()).as_bytes()
    }

    fn bytes(&self) -> Vec<u8> {
        let version = self.experiment_version.to_be_bytes();
        fields(&[
            self.tenant.as_bytes(),
            self.subject.as_bytes(),
            self.experiment_id.as_bytes(),
            &version,
            self.variant.as_bytes(),
            self.request_id.as_bytes(),
        ])
    }
}

/// What is wrong with the seals of a row; `None` when nothing is.
pub fn forgery(row: &Row) -> Option<String> {
    let Some(event) = Event::of(row).filter(|event| event.experiment_version > 0) else {
        return Some(format!("experiment_version is {}", row.experiment_version));
    };
    if event.id() != row.event_id {
        return Some("the event id is not that of what the row states".to_owned());
    }
    (digest(&event, row) != row.body).then(|| "the digest is not that of what the row states".to_owned())
}

/// The row with the id and the digest that it has to have; as it is when its version is none.
pub(crate) fn sealed(row: Row) -> Row {
    let Some(event) = Event::of(&row) else { return row };
    let (event_id, body) = (event.id(), digest(&event, &row));
    Row { event_id, body, ..row }
}

/// What the digest of a row has to be.
fn digest(event: &Event<'_>, row: &Row) -> [u8; 32] {
    let rest = [&row.surface, &row.class, &row.region, &row.origin].map(|field| field.as_bytes());
    let mut hash = Sha256::new();
    hash.update(BODY_DOMAIN);
    hash.update(event.bytes());
    hash.update(fields(&rest));
    hash.finalize().into()
}

/// Each field preceded by its length in four bytes.
fn fields(fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        bytes.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(field);
    }
    bytes
}

/// The arm of a subject, and another one when the two are too close to tell.
pub fn arm<'e>(tenant: &str, subject: &str, experiment: &'e Experiment) -> [Option<&'e str>; 2] {
    let key =
        [tenant, subject, &experiment.id].iter().fold(SALT, |key, part| fold_bytes(key, part.as_bytes()));
    let mut bids: Vec<(f64, &str)> = experiment
        .variants
        .iter()
        .filter(|variant| variant.weight > 0)
        .map(|variant| {
            let draw = fold_bytes(key, variant.name.as_bytes()) | 1;
            (exponential(draw) / f64::from(variant.weight), variant.name.as_str())
        })
        .collect();
    bids.sort_by(|one, other| one.0.total_cmp(&other.0));
    let winner = bids.first().copied();
    let rival = bids.get(1).zip(winner).filter(|(rival, winner)| rival.0 - winner.0 <= winner.0 * TIE);
    [winner.map(|(_, name)| name), rival.map(|((_, name), _)| *name)]
}

/// `−ln(draw / 2^64)`, without losing what is close to zero.
fn exponential(draw: u64) -> f64 {
    const WHOLE: f64 = 18_446_744_073_709_551_616.0;
    if draw >> 63 == 0 {
        return -(draw as f64 / WHOLE).ln();
    }
    // The distance from the whole is exact where the draw itself would be rounded up to it.
    let missing = (u64::MAX - draw) as f64 + 1.0;
    -(-missing / WHOLE).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposures::catalogue::Variant;

    #[test]
    fn ids_and_digests_are_those_that_an_independent_program_computed() {
        let mut row = Row {
            sequence: 1,
            event_id: Uuid::parse_str("0de8c7d6-21f7-5632-96d5-a444d3a5f112").expect("an id").into_bytes(),
            body: [0; 32],
            tenant: "tenant-000".to_owned(),
            subject: "user-00001".to_owned(),
            experiment_id: "home-layout".to_owned(),
            experiment_version: 3,
            variant: "compact".to_owned(),
            request_id: "op-1".to_owned(),
            surface: "home".to_owned(),
            class: "standard".to_owned(),
            region: "eu-west".to_owned(),
            origin: "customer".to_owned(),
            objection: None,
        };
        let digest = "1ed818ab5a77cc1296af430a8175e5ef20dfaf00df4db9d75286f84d338c44ea";
        for (at, byte) in row.body.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digest[at * 2..at * 2 + 2], 16).expect("hexadecimal");
        }
        assert_eq!(forgery(&row), None);
        for change in [
            |row: &mut Row| row.variant = "wide".to_owned(),
            |row: &mut Row| row.experiment_version = 0,
            |row: &mut Row| row.experiment_version = -1,
            |row: &mut Row| row.region = "us-east".to_owned(),
            |row: &mut Row| row.body[31] ^= 1,
            |row: &mut Row| row.event_id[0] ^= 1,
        ] {
            let mut changed = row.clone();
            change(&mut changed);
            assert!(forgery(&changed).is_some(), "{changed:?}");
        }
    }

    #[test]
    fn arms_are_those_that_an_independent_program_computed() {
        let variant = |name: &str, weight| Variant { name: name.to_owned(), weight };
        let experiment = Experiment {
            id: "home-layout".to_owned(),
            version: 1,
            variants: vec![
                variant("control", 50),
                variant("compact", 30),
                variant("wide", 20),
                variant("none", 0),
            ],
        };
        let arms: Vec<_> = (0..12)
            .map(|at| arm("tenant-000", &format!("user-{at:05}"), &experiment)[0].expect("an arm"))
            .collect();
        let expected =
            "compact wide control control compact compact wide compact control wide control compact";
        assert_eq!(arms.join(" "), expected);
        assert_eq!(
            arm("t", "s", &Experiment { variants: vec![variant("a", 0)], ..experiment }),
            [None, None]
        );
    }

    #[test]
    fn the_logarithm_holds_at_both_ends() {
        assert!((exponential(1) - 64.0 * std::f64::consts::LN_2).abs() < 1e-12);
        assert!(exponential(u64::MAX) > 0.0 && exponential(u64::MAX) < 1e-18);
        assert!((exponential(1 << 63) - std::f64::consts::LN_2).abs() < 1e-15);
    }
}
