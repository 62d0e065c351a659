//! Table: the bounds themselves, in the order in which a request meets them.

use base::Nanos;
use model::policy::{Boundary, ServiceName};
use serve::{connection, exchange, shell, telemetry};

use super::{Bound, Of, Unit};
use crate::host;

/// A row: name, where it is set, what it counts, whose it is, its limit; then what is bounded, what happens beyond, and the series
/// for what is used and for what went beyond.
macro_rules! bounds {
    ($($name:literal $set_by:literal $unit:ident $of:expr, $limit:expr;
       $what:literal, $beyond:literal, $used:literal, $told:literal;)*) => {
        /// Every bound.
        pub const BOUNDS: &[Bound] = &[$(Bound {
            name: $name,
            set_by: $set_by,
            unit: Unit::$unit,
            of: $of,
            limit: $limit,
            what: $what,
            beyond: $beyond,
            used: $used,
            told: $told,
        }),*];
    };
}

const EVERY: Of = Of::Every;
const HOME: Of = Of::Only(ServiceName::HomeApi);
const EXPERIMENT: Of = Of::Only(ServiceName::Experiment);

const fn ms(span: Nanos) -> u64 {
    span.as_millis()
}

bounds! {
    "connections_max" "limits.connections_max" Count EVERY, |of| of.limits.connections_max.into();
    "connections of a port; one is counted before a task exists for it", "closed at once",
    "mercury_connections_open", "mercury_connections_refused_total";

    "first_byte_timeout_ms" "limits.first_byte_timeout_ms" Millis EVERY, |of| ms(of.limits.first_byte_timeout);
    "silence of a new connection", "closed", "", "mercury_connections_silent_total";

    "keep_alive_interval_ms" "limits.keep_alive_interval_ms" Millis EVERY, |of| ms(of.limits.keep_alive_interval);
    "silence of a connection; a head that is not complete, on HTTP/1", "probed by a PING; closed, on HTTP/1",
    "", "mercury_connections_silent_total";

    "keep_alive_timeout_ms" "limits.keep_alive_timeout_ms" Millis EVERY, |of| ms(of.limits.keep_alive_timeout);
    "silence after a PING", "closed", "", "mercury_connections_silent_total";

    "requests_max" "limits.requests_max" Count EVERY, |of| of.limits.requests_max.into();
    "requests of a process until their answers are read: those without an answer, and the answers on their way",
    "refused as overload, at once", "mercury_requests_under_way", "mercury_requests_finished_total{outcome=\"overload\"}";

    "long_lived_max" "constant" Count EVERY, |_| exchange::LONG_LIVED_MAX.into();
    "health watches, reflection and feeds of a process, which `requests_max` leaves out; a health check is held to neither",
    "refused as overload, at once", "mercury_long_lived_calls_open",
    "mercury_requests_finished_total{outcome=\"overload\"}";

    "streams_max" "limits.streams_max" Count EVERY, |of| of.limits.streams_max.into();
    "streams of a connection, each with one task", "told in SETTINGS; the protocol refuses the stream",
    "mercury_tasks_live{task=\"stream\"}", "";

    "pending_reset_streams_max" "limits.pending_reset_streams_max" Count EVERY, |of| of.limits.pending_reset_streams_max.into();
    "streams that a peer reset before they were seen", "the connection ends", "", "";

    "local_reset_streams_max" "limits.local_reset_streams_max" Count EVERY, |of| of.limits.local_reset_streams_max.into();
    "streams that this side reset, in a connection's life", "the connection ends", "", "mercury_streams_cut_total";

    "header_bytes_max" "limits.header_bytes_max" Bytes EVERY, |of| of.limits.header_bytes_max.into();
    "headers of a request, as RFC 9113 counts them", "refused as headers_too_large",
    "mercury_request_bytes_largest{part=\"headers\"}", "mercury_requests_finished_total{outcome=\"headers_too_large\"}";

    "body_bytes_max" "limits.body_bytes_max" Bytes EVERY, |of| of.limits.body_bytes_max.into();
    "body of a request and each message in it, while it accumulates; nothing is ever decompressed",
    "refused as body_too_large", "mercury_request_bytes_largest{part=\"body\"}",
    "mercury_requests_finished_total{outcome=\"body_too_large\"}";

    "stream_window_bytes" "limits.stream_window_bytes" Bytes EVERY, |of| of.limits.stream_window_bytes.into();
    "bytes of a request that nobody has read yet", "its sender waits", "", "";

    "connection_window_bytes" "limits.connection_window_bytes" Bytes EVERY, |of| of.limits.connection_window_bytes.into();
    "bytes of a connection that nobody has read yet", "its peer waits", "", "";

    "timeout_max_ms" "services.home-api.timeout_max_ms" Millis HOME, |of| ms(of.service(ServiceName::HomeApi).timeout_max);
    "the deadline of a page", "clamped, and the page cut", "", "mercury_deadline_exceeded_total";

    "endpoint_slots_max" "admission.endpoint.slots" Count HOME, |of| of.admission(Boundary::Endpoint).slots.into();
    "pages under way", "wait for a slot", "mercury_home_held{gate=\"endpoint\"}", "";

    "endpoint_limit_max" "admission.endpoint.limit" Count HOME, |of| of.admission(Boundary::Endpoint).gate().limit().into();
    "pages that the gate lets in", "wait in its queue", "mercury_home_held{gate=\"endpoint\"}", "";

    "endpoint_queue_max" "admission.endpoint.classes" Count HOME, |of| of.admission(Boundary::Endpoint).queue_max();
    "pages that wait for the gate", "refused as overload, at once", "mercury_home_waiting{gate=\"endpoint\"}",
    "mercury_home_admission_total{gate=\"endpoint\"}";

    "endpoint_queue_age_ms" "admission.endpoint.queue_age_max_ms" Millis HOME, |of| ms(of.admission(Boundary::Endpoint).queue_age_max());
    "age of a page that waits for the gate", "refused as overload",
    "mercury_home_queue_oldest_age_seconds{gate=\"endpoint\"}", "mercury_home_admission_total{gate=\"endpoint\"}";

    "profile_slots_max" "admission.profile.slots" Count HOME, |of| of.admission(Boundary::Profile).slots.into();
    "profile reads under way", "wait for a slot", "mercury_home_held{gate=\"profile\"}", "";

    "profile_limit_max" "admission.profile.limit" Count HOME, |of| of.admission(Boundary::Profile).gate().limit().into();
    "profile reads that the gate lets in", "wait in its queue", "mercury_home_held{gate=\"profile\"}", "";

    "profile_queue_max" "admission.profile.classes" Count HOME, |of| of.admission(Boundary::Profile).queue_max();
    "profile reads that wait for the gate", "refused as overload, at once", "mercury_home_waiting{gate=\"profile\"}",
    "mercury_home_admission_total{gate=\"profile\"}";

    "profile_queue_age_ms" "admission.profile.queue_age_max_ms" Millis HOME, |of| ms(of.admission(Boundary::Profile).queue_age_max());
    "age of a profile read that waits for the gate", "refused as overload",
    "mercury_home_queue_oldest_age_seconds{gate=\"profile\"}", "mercury_home_admission_total{gate=\"profile\"}";

    "flights_max" "coalescing.flights_max" Count HOME, |of| of.coalescing.flights_max.into();
    "shared profile reads", "the read is not shared", "mercury_home_flights_open", "";

    "flight_waiters_max" "coalescing.waiters_max" Count HOME, |of| of.coalescing.waiters_max.into();
    "pages that wait for one shared read", "another read is begun", "mercury_home_flight_waiters", "";

    "flight_duration_ms" "coalescing.duration_max_ms" Millis HOME, |of| ms(of.coalescing.duration_max);
    "a shared read", "it ends, and its waiters with it", "", "mercury_home_flights_total{outcome=\"expired\"}";

    "shadow_max" "summary.shadow_max" Count HOME, |of| of.summary.shadow_max.into();
    "comparisons of summaries", "left out", "mercury_home_comparisons_open",
    "mercury_home_comparisons_total{outcome=\"not_run\"}";

    "samples_max" "summary.samples_max" Count HOME, |of| of.summary.samples_max.into();
    "samples of differences that are kept", "the oldest goes", "mercury_home_samples", "";

    "link_calls_max" "limits.streams_max" Count EVERY, |of| of.limits.streams_max.into();
    "calls under way on a link", "refused, saturated", "mercury_link_in_flight",
    "mercury_link_failures_total{cause=\"saturated\"}";

    "link_connect_timeout_ms" "constant" Millis EVERY, |_| ms(host::CONNECT_TIMEOUT);
    "an attempt to connect", "it failed; the next one is a backoff later", "", "mercury_link_connect_failures_total";

    "link_message_bytes_max" "constant" Bytes EVERY, |_| host::MESSAGE_BYTES_MAX as u64;
    "a message of a dependency's answer, by its declared length", "the call fails, message_too_large", "",
    "mercury_link_failures_total{cause=\"message_too_large\"}";

    "exposure_queue_max" "exposure.queue_max" Count EXPERIMENT, |of| of.exposure.queue_max.into();
    "exposures that wait for the writer", "refused as overload, at once", "mercury_exposures_waiting",
    "mercury_exposures_total{outcome=\"refused\"}";

    "exposure_queue_bytes_max" "exposure.queue_bytes_max" Bytes EXPERIMENT, |of| of.exposure.queue_bytes_max.into();
    "what they occupy", "refused as overload, at once", "mercury_exposures_waiting_bytes",
    "mercury_exposures_total{outcome=\"refused\"}";

    "exposure_batch_max" "exposure.batch_max" Count EXPERIMENT, |of| of.exposure.batch_max.into();
    "exposures of one transaction, beyond which it takes no further request; their histogram is `mercury_exposure_transaction_rows`", "the next transaction",
    "", "";

    "exposure_busy_timeout_ms" "exposure.busy_timeout_ms" Millis EXPERIMENT, |of| ms(of.exposure.busy_timeout);
    "a lock on the ledger that somebody else holds", "the transaction is known absent", "",
    "mercury_exposures_total{outcome=\"known_absent\"}";

    "exposure_store_timeout_ms" "exposure.store_timeout_ms" Millis EXPERIMENT, |of| ms(of.exposure.store_timeout);
    "connecting to a ledger in PostgreSQL, and each step of a transaction there",
    "known absent; of unknown outcome once the commit was sent", "", "mercury_exposures_total{outcome=\"ambiguous\"}";

    "exposure_probe_interval_ms" "exposure.probe_interval_ms" Millis EXPERIMENT, |of| ms(of.exposure.probe_interval);
    "a ledger that is idle or out of order", "probed; readiness follows", "",
    "mercury_exposure_ledger_probes_total{outcome=\"failed\"}";

    "response_stream_bytes_max" "constant" Bytes EVERY, |_| connection::SEND_BUFFER_BYTES as u64;
    "bytes of a response that wait for the socket", "its body is not asked for more", "mercury_response_bytes_waiting", "";

    "write_stall_timeout_ms" "limits.write_stall_timeout_ms" Millis EVERY, |of| ms(of.limits.write_stall_timeout);
    "a reader that takes less of its response than a piece, 16 KiB or what is left", "its connection is cut", "mercury_responses_open",
    "mercury_readers_cut_total";

    "telemetry_spans_max" "constant" Count Of::Exporting, |_| telemetry::QUEUE_MAX as u64;
    "spans that wait for the collector", "dropped", "mercury_telemetry_waiting_spans",
    "mercury_telemetry_dropped_spans_total{reason=\"queue_full\"}";

    "drain_ms" "drain_ms" Millis EVERY, |of| ms(of.drain);
    "quiesce, close producers and drain, together", "what is left is cut, exit code 3",
    "mercury_lifecycle_spent_seconds{stage=\"draining\"}", "";

    "reconcile_ms" "constant" Millis EVERY, |_| ms(shell::RECONCILE_MAX);
    "background work that settles after the drain", "aborted, exit code 3",
    "mercury_lifecycle_spent_seconds{stage=\"reconciling\"}", "mercury_tasks_ended_total{ending=\"aborted\"}";

    "terminate_ms" "constant" Millis EVERY, |_| ms(shell::TERMINATE_MAX);
    "aborted tasks that are not gone", "dropped with the runtime",
    "mercury_lifecycle_spent_seconds{stage=\"terminating\"}", "mercury_tasks_ended_total{ending=\"aborted\"}";
}
