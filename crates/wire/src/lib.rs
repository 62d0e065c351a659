//! Wire: the generated protobuf and gRPC code, and nothing else.
//!
//! One module a protobuf package. Hand-written code never lives here, and protobuf types stop at the edge of a service
//! (`service.rs`, `clients.rs`).

/// The serialized `FileDescriptorSet` of every package, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

macro_rules! package {
    ($($doc:literal $module:ident::$version:ident = $package:literal;)*) => {$(
        #[doc = $doc]
        pub mod $module {
            #[doc = concat!("Package `", $package, "`.")]
            #[allow(
                clippy::allow_attributes_without_reason,
                missing_docs,
                unreachable_pub,
                clippy::all,
                reason = "generated; the proto files carry the documentation"
            )]
            pub mod $version {
                tonic::include_proto!($package);
            }
        }
    )*};
}

package! {
    "The assembled page." home::v2 = "mercury.home.v2";
    "What a subject may do, signed." summary::v1 = "mercury.summary.v1";
    "Who the subject is." profile::v1 = "mercury.profile.v1";
    "What the subject may do." entitlement::v1 = "mercury.entitlement.v1";
    "What items cost." pricing::v1 = "mercury.pricing.v1";
    "What can be promised." inventory::v1 = "mercury.inventory.v1";
    "What the subject may like." recommendation::v1 = "mercury.recommendation.v1";
    "How the subject's reviews stand." reputation::v1 = "mercury.reputation.v1";
    "Which arms the subject is shown." experiment::v1 = "mercury.experiment.v1";
    "The emulated dependencies and their control." emulator::v1 = "mercury.emulator.v1";
}
