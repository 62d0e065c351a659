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
type Tamper = fn(Row) -> Vec<Row>;

/// Faults, each with the name that it has to be found by.
const FAULTS: [(Class, Tamper); 5] = [
    (Class::Lost, |_| Vec::new()),
    (Class::Duplicated, |row| {
        let experiment_version = row.experiment_version + 1;
        vec![row.clone(), oracle::sealed(Row { experiment_version, ..row })]
    }),
    (Class::Forged, |mut row| {
        row.body[0] ^= 1;
        vec![row]
    }),
    (Class::Orphan, |row| {
        let nobody = oracle::sealed(Row { request_id: "nobody-asked".to_owned(), ..row.clone() });
        vec![row, nobody]
    }),
    (Class::Altered, |row| vec![oracle::sealed(Row { region: "elsewhere".to_owned(), ..row })]),
];

/// A ledger, read with one row made into others.
struct Tampered<'a> {
    ledger: &'a dyn Ledger,
    event_id: [u8; 16],
    tamper: Tamper,
}

impl Rows for Tampered<'_> {
    fn scan<'a>(&'a self, each: &'a mut (dyn FnMut(Row) + Send)) -> Scan<'a> {
        Box::pin(async move {
            let mut through = |row: Row| {
                if row.event_id == self.event_id {
                    (self.tamper)(row).into_iter().for_each(&mut *each);
                } else {
                    each(row);
                }
            };
            self.ledger.scan(&mut through).await
        })
    }
}

pub(super) async fn found(stage: &Stage, catalogue: &Catalogue, record: &[PathBuf]) -> Result<Found, Failed> {
    let mut found = Found::default();
    let Some(event_id) = shown(record)? else {
        found.must(false, "nobody was shown an arm");
        return Ok(found);
    };
    for (class, tamper) in FAULTS {
        let ledger = Tampered { ledger: stage.ledger.as_ref(), event_id, tamper };
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
