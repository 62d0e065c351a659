//! Faults: whether the reconciliation would have found what is wrong, on the evidence of this very rehearsal: the ledger is
//! read as it is but for one row.

use std::path::PathBuf;

use load::record::Operation;
use uuid::Uuid;

use super::{Failed, Found, Stage};
use crate::{
    effects::{Ledger, stage::no_account},
    exposures::{Catalogue, Class, Row, Rows, Scan, oracle, reconcile, reconcile::Limits, records},
    verdict::Verdict,
};

/// What is read in a row's place.
type Tamper = fn(Row, &Catalogue) -> Vec<Row>;

/// Faults, each with the name that it has to be found by.
const FAULTS: [(Class, Tamper); Class::ALL.len()] = [
    (Class::Lost, |_, _| Vec::new()),
    (Class::Duplicated, |row, _| {
        let experiment_version = row.experiment_version + 1;
        vec![row.clone(), oracle::sealed(Row { experiment_version, ..row })]
    }),
    (Class::Forged, |mut row, _| {
        row.body[0] ^= 1;
        vec![row]
    }),
    (Class::Orphan, |row, _| {
        let nobody = oracle::sealed(Row { request_id: "nobody-asked".to_owned(), ..row.clone() });
        vec![row, nobody]
    }),
    (Class::Altered, |row, _| vec![oracle::sealed(Row { region: "elsewhere".to_owned(), ..row })]),
    (Class::Misallocated, |row, catalogue| {
        vec![oracle::sealed(Row { variant: other_arm(&row, catalogue), ..row })]
    }),
    (Class::Extra, |row, _| {
        let unshown = oracle::sealed(Row { experiment_id: "nobody-was-shown".to_owned(), ..row.clone() });
        vec![row, unshown]
    }),
];

/// An arm of the row's experiment that it does not have: one of the catalogue, where there is another.
fn other_arm(row: &Row, catalogue: &Catalogue) -> String {
    let arms = catalogue.get(&row.experiment_id).map_or(&[][..], |experiment| &experiment.variants);
    let other = arms.iter().find(|arm| arm.name != row.variant);
    other.map_or_else(|| format!("not-{}", row.variant), |arm| arm.name.clone())
}

/// A ledger, read with one row made into others.
struct Tampered<'a> {
    ledger: &'a dyn Rows,
    catalogue: &'a Catalogue,
    event_id: [u8; 16],
    tamper: Tamper,
}

impl Rows for Tampered<'_> {
    fn scan<'a>(&'a self, each: &'a mut (dyn FnMut(Row) + Send)) -> Scan<'a> {
        Box::pin(async move {
            let mut through = |row: Row| {
                if row.event_id == self.event_id {
                    (self.tamper)(row, self.catalogue).into_iter().for_each(&mut *each);
                } else {
                    each(row);
                }
            };
            self.ledger.scan(&mut through).await
        })
    }
}

pub(super) async fn found(stage: &Stage, catalogue: &Catalogue, record: &[PathBuf]) -> Result<Found, Failed> {
    let ledger: &dyn Ledger = stage.ledger.as_ref();
    find(ledger, catalogue, record).await
}

async fn find(ledger: &dyn Rows, catalogue: &Catalogue, record: &[PathBuf]) -> Result<Found, Failed> {
    let mut found = Found::default();
    let Some(event_id) = shown(record)? else {
        found.must(false, "nobody was shown an arm");
        return Ok(found);
    };
    for (class, tamper) in FAULTS {
        let ledger = Tampered { ledger, catalogue, event_id, tamper };
        let account = reconcile(&ledger, record, catalogue, Limits::default()).await.map_err(no_account)?;
        found.must(
            account.count(class) == 1 && account.verdict == Verdict::Fail,
            format!("a row that was made {class} was not found: {}", account.why()),
        );
    }
    let names: Vec<&str> = FAULTS.iter().map(|(class, _)| class.as_str()).collect();
    found.saw(format!("one row at a time made {}: each found by that name", names.join(", ")));
    Ok(found)
}

/// The event of an arm that somebody was shown.
fn shown(record: &[PathBuf]) -> Result<Option<[u8; 16]>, Failed> {
    let mut event = None;
    for path in record {
        let each = |operation: Operation| {
            let id = operation.arms.first().and_then(|arm| Uuid::parse_str(&arm.event_id).ok());
            event = event.or(id.map(Uuid::into_bytes));
        };
        records::read(path, each).map_err(|error| no_account(error.into()))?;
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposures::tests::{Case, catalogue};

    #[tokio::test]
    async fn every_kind_is_made_once_and_found_by_its_name() {
        let mut made: Vec<Class> = FAULTS.iter().map(|(class, _)| *class).collect();
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), Class::ALL.len());
        let case = Case::new(5);
        case.write();
        let found = find(&case.ledger, &catalogue(), &[case.path()]).await.expect("an account");
        let told = Found::told("faults", Ok(found)).expect("a story");
        assert_eq!(told.verdict, Verdict::Pass, "{}", told.detail);
    }
}
