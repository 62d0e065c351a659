//! Catalogue: the experiments that the emulator served, as it says itself, or as a file keeps it.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    control::{Control, ControlError},
    suite::write_json,
};

/// Schema of the file.
const SCHEMA: &str = "mercury.catalogue/v1";
/// Most bytes of the file.
const BYTES_MAX: u64 = 1 << 20;

/// The experiments of one surface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    schema: String,
    /// Where their arms are shown.
    pub surface: String,
    /// The experiments.
    pub experiments: Vec<Experiment>,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its id.
    pub id: String,
    /// Version of its definition.
    pub version: u32,
    /// Its arms.
    pub variants: Vec<Variant>,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its relative weight.
    pub weight: u32,
}

impl Catalogue {
    /// Of these experiments.
    pub fn new(surface: &str, experiments: Vec<Experiment>) -> Self {
        Self { schema: SCHEMA.to_owned(), surface: surface.to_owned(), experiments }
    }

    /// Asks the emulator.
    ///
    /// # Errors
    /// When there is no emulator.
    pub async fn ask(control: &mut Control, surface: &str) -> Result<Self, ControlError> {
        let told = control.experiments(surface).await?;
        let experiments = told.experiments.into_iter().map(|one| Experiment {
            id: one.experiment_id,
            version: one.experiment_version,
            variants: one
                .variants
                .into_iter()
                .map(|arm| Variant { name: arm.variant, weight: arm.weight })
                .collect(),
        });
        Ok(Self::new(surface, experiments.collect()))
    }

    /// Reads a file that [`Catalogue::write`] wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let length = fs::metadata(path).map_err(|error| error.to_string())?.len();
        if length > BYTES_MAX {
            return Err("it is larger than 1 MiB".to_owned());
        }
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let catalogue: Self = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if catalogue.schema != SCHEMA {
            return Err(format!("schema: expected {SCHEMA}, found {:?}", catalogue.schema));
        }
        Ok(catalogue)
    }

    /// Writes it for later.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_json(path, self)
    }

    /// The experiment of an id.
    pub fn get(&self, id: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.id == id)
    }
}
