//! Tests of the verification over real ledger files: what the service wrote passes, and each thing that somebody does to the file
//! afterwards is found by its name and ends the command with the code of a gate that failed.

use std::{fs, path::Path, sync::Arc};

use base::{
    CallContext, Deadline, Identity, Nanos, Origin, Region, RequestId, Subject, Tenant, WorkloadClass,
    clock::SystemWallClock, trace::TraceContext,
};
use experiment::{
    decide::{self, Definitions, Experiment, Exposure, Surface, Variant},
    ledger::{Ledger as _, SqliteLedger},
};
use load::record::{Arm, Attempt, End, Ending, Line, Operation, Run, SCHEMA};
use rehearsal::exposures::{
    Class,
    catalogue::{Experiment as Served, Variant as ServedVariant},
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use super::*;

const OPERATIONS: usize = 40;

/// A ledger that the service wrote, the record of its callers, and the catalogue.
struct Case {
    home: TempDir,
}

fn experiments() -> Vec<Experiment> {
    let experiment = |id: &str, version, variants: &[(&str, u32)]| Experiment {
        id: id.to_owned(),
        version,
        variants: variants
            .iter()
            .map(|(name, weight)| Variant { name: (*name).to_owned(), weight: *weight })
            .collect(),
    };
    vec![
        experiment("hero", 3, &[("control", 50), ("large", 50)]),
        experiment("badge", 2, &[("a", 1), ("b", 9)]),
    ]
}

fn exposures(number: usize) -> Vec<Exposure> {
    let context = CallContext {
        identity: Identity {
            tenant: Tenant::parse("tenant-001").expect("valid"),
            subject: Subject::parse(&format!("user-{number:05}")).expect("valid"),
            class: WorkloadClass::Standard,
            region: Region::parse("eu-west").expect("valid"),
        },
        origin: Origin::Customer,
        request_id: RequestId::parse(&format!("op-{number}")).expect("valid"),
        attempt: 1,
        arrived: Nanos::ZERO,
        deadline: Deadline::at(Nanos::MAX),
        budget_trail: vec![],
        trace: TraceContext { trace_id: 1, span_id: 1, sampled: false },
        tracestate: String::new(),
    };
    let surface = Surface::new("home".to_owned()).expect("valid");
    decide::expose(&context, &surface, &Definitions::new(experiments()).expect("sound"))
}

fn operation(number: usize) -> Operation {
    let arms = exposures(number).into_iter().map(|exposure| Arm {
        experiment_id: exposure.experiment_id,
        experiment_version: exposure.experiment_version,
        variant: exposure.variant,
        event_id: exposure.event_id.to_string(),
        effect: "committed".to_owned(),
    });
    Operation {
        id: format!("op-{number}"),
        tenant: "tenant-001".to_owned(),
        subject: format!("user-{number:05}"),
        class: "standard".to_owned(),
        region: "eu-west".to_owned(),
        origin: "customer".to_owned(),
        ended: Ending::Answered,
        attempts: vec![Attempt { target: 0, outcome: "ok".to_owned(), ambiguous: false }],
        arms: arms.collect(),
    }
}

impl Case {
    async fn new() -> Self {
        let case = Self { home: tempfile::tempdir().expect("a directory") };
        let wall = Arc::new(SystemWallClock);
        let mut ledger = SqliteLedger::open(&case.path("exposures.db"), Nanos::from_secs(5), wall)
            .await
            .expect("a ledger");
        let rows: Vec<Exposure> = (0..OPERATIONS).flat_map(exposures).collect();
        ledger.record(&rows.iter().collect::<Vec<_>>()).await.expect("committed");
        ledger.close().await;
        case.write("record.ndjson", 0..OPERATIONS);
        let served = experiments().into_iter().map(|one| Served {
            id: one.id,
            version: one.version,
            variants: one
                .variants
                .into_iter()
                .map(|arm| ServedVariant { name: arm.name, weight: arm.weight })
                .collect(),
        });
        let catalogue = Catalogue::new("home", served.collect());
        catalogue.write(&case.path("catalogue.json")).expect("written");
        case
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, numbers: std::ops::Range<usize>) {
        let run = Run { schema: SCHEMA.to_owned(), targets: vec![], id_prefix: "op".to_owned(), seed: 1 };
        let end = End { operations: numbers.len() as u64, missed: 0 };
        let operations = numbers.map(|number| Line::Operation(operation(number)));
        let lines = std::iter::once(Line::Run(run)).chain(operations).chain([Line::End(end)]);
        let text: String = lines.map(|line| serde_json::to_string(&line).expect("JSON") + "\n").collect();
        fs::write(self.path(name), text).expect("written");
    }

    async fn change(&self, sql: &str) {
        let options = SqliteConnectOptions::new().filename(self.path("exposures.db"));
        let mut connection = options.connect().await.expect("a file");
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await.expect("valid SQL");
        assert_eq!(done.rows_affected(), 1, "{sql}");
        connection.close().await.expect("closed");
    }

    async fn verify(&self, ledger: &Path, record: &str) -> Result<Exit, Exit> {
        verify(Verify {
            ledger: Some(ledger.to_string_lossy().into_owned()),
            records: vec![self.path(record)],
            catalogue: Some(self.path("catalogue.json")),
            at: At { emulator: None, state_dir: self.path("none"), surface: "home".to_owned() },
            examples: 3,
            output: Output::Json,
        })
        .await
    }

    async fn ends(&self) -> Exit {
        self.verify(&self.path("exposures.db"), "record.ndjson").await.expect("an account")
    }
}

#[tokio::test]
async fn what_the_service_wrote_passes() {
    let case = Case::new().await;
    assert!(matches!(case.ends().await, Exit::Pass));
}

#[tokio::test]
async fn what_somebody_did_to_the_file_is_found_by_its_name() {
    let columns = "event_id, body_sha256, tenant, subject, experiment_id, experiment_version, variant, request_id, \
                   surface, class, region, origin, recorded_unix_ms";
    // A row of another event of the same operation, and one of an operation that nobody asked for, as the service seals them.
    let sealed = |exposure: &Exposure| {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!(
            "INSERT INTO exposure ({columns}) VALUES (x'{}', x'{}', '{}', '{}', '{}', {}, '{}', '{}', 'home', 'standard', \
             'eu-west', 'customer', 1)",
            hex(exposure.event_id.as_bytes()),
            hex(&exposure.body.0),
            exposure.tenant.as_str(),
            exposure.subject.as_str(),
            exposure.experiment_id,
            exposure.experiment_version,
            exposure.variant,
            exposure.request_id.as_str(),
        )
    };
    let nobody = &exposures(OPERATIONS + 7)[0];
    let mut again = exposures(3)[0].clone();
    again.experiment_version += 1;
    let again = again_sealed(&again);
    for (class, sql) in [
        (Class::Lost, "DELETE FROM exposure WHERE sequence = 7".to_owned()),
        (Class::Duplicated, sealed(&again)),
        (Class::Orphan, sealed(nobody)),
        (Class::Forged, "UPDATE exposure SET variant = 'c' WHERE sequence = 9".to_owned()),
        (Class::Forged, "UPDATE exposure SET region = 'us-east' WHERE sequence = 9".to_owned()),
        (Class::Forged, "UPDATE exposure SET body_sha256 = zeroblob(32) WHERE sequence = 9".to_owned()),
    ] {
        let case = Case::new().await;
        case.change(&sql).await;
        let Exit::GateFailed(why) = case.ends().await else { panic!("{class} was not found") };
        assert!(why.contains(&format!("1 {class}")), "{class}: {why}");
    }
}

/// The exposure with the id and digest of what it now states.
fn again_sealed(exposure: &Exposure) -> Exposure {
    let (event_id, body) = exposure.statement().seal();
    Exposure { event_id, body, ..exposure.clone() }
}

#[tokio::test]
async fn what_shows_nothing_is_inconclusive_and_what_cannot_be_read_is_named() {
    let case = Case::new().await;
    let ledger = case.path("exposures.db");
    case.write("empty.ndjson", 0..0);
    let ended = case.verify(&ledger, "empty.ndjson").await;
    // Every row is an orphan then: nobody says that the record has a gap.
    assert!(matches!(ended, Ok(Exit::GateFailed(why)) if why.contains("orphan")));
    let whole = fs::read_to_string(case.path("record.ndjson")).expect("written");
    fs::write(case.path("cut.ndjson"), &whole[..whole.len() - 30]).expect("written");
    let ended = case.verify(&ledger, "cut.ndjson").await;
    assert!(matches!(ended, Ok(Exit::Inconclusive(why)) if why.contains("breaks off")));
    let ended = case.verify(&ledger, "none.ndjson").await;
    assert!(
        matches!(ended, Err(Exit::Usage(text)) if text.starts_with("--record ") && text.contains("none"))
    );
    let ended = case.verify(&case.path("none.db"), "record.ndjson").await;
    assert!(matches!(ended, Err(Exit::Error(text)) if text.contains("none.db")));
    fs::write(case.path("catalogue.json"), "{}").expect("written");
    let ended = case.verify(&ledger, "record.ndjson").await;
    assert!(matches!(ended, Err(Exit::Usage(text)) if text.starts_with("--catalogue ")));
}
