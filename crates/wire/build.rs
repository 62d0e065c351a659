//! Compiles the protobufs with protox, so that no installed protoc is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

/// Every proto file of the suite; a new file is added here.
const FILES: &[&str] = &[
    "mercury/home/v2/home.proto",
    "mercury/summary/v1/summary.proto",
    "mercury/profile/v1/profile.proto",
    "mercury/entitlement/v1/entitlement.proto",
    "mercury/pricing/v1/pricing.proto",
    "mercury/inventory/v1/inventory.proto",
    "mercury/recommendation/v1/recommendation.proto",
    "mercury/reputation/v1/reputation.proto",
    "mercury/experiment/v1/experiment.proto",
    "mercury/emulator/v1/facts.proto",
    "mercury/emulator/v1/control.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let descriptors = protox::compile(FILES, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(descriptors)?;
    Ok(())
}
