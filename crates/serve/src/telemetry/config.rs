//! Config: what can be set about logs and spans, with the environment variables of the OpenTelemetry specification.

use std::io::{self, IsTerminal as _};

use base::Nanos;
use tracing::Dispatch;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::TelemetryError;

/// Most spans that wait, by the specification's default.
pub const QUEUE_MAX: usize = 2_048;

/// Settings of a process.
#[derive(Clone, Debug)]
pub struct TelemetryConfig {
    /// `service.name`.
    pub service: &'static str,
    /// `service.instance.id`, unique among the processes of one service.
    pub instance: String,
    /// Logs.
    pub log: LogConfig,
    /// Spans; `None` exports nothing.
    pub export: Option<ExportConfig>,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people, coloured on a terminal.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Settings of the log on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Directives as in `RUST_LOG`: `info`, `warn,serve=debug`.
    pub filter: String,
    /// How a line looks.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Human }
    }
}

/// Settings of the span exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportConfig {
    /// The collector's OTLP/gRPC endpoint, `http://host:port`.
    pub endpoint: String,
    /// Share of the traces begun here that are recorded, 0 to 1. A trace begun elsewhere is recorded if its caller
    /// records it.
    pub ratio: f64,
    /// Most spans that wait; a further one is dropped and counted.
    pub queue_max: usize,
    /// Most spans in one request to the collector; so many waiting ones are sent at once.
    pub batch_max: usize,
    /// Longest wait of a span before it is sent.
    pub delay: Nanos,
    /// Bound of one request to the collector, retries included.
    pub timeout: Nanos,
}

impl ExportConfig {
    /// Everything recorded, and sent to `endpoint` by the specification's defaults: 2,048 waiting, 512 a batch. The
    /// delay is a second, so that a trace can be looked at while one remembers why.
    pub fn to(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            ratio: 1.0,
            queue_max: QUEUE_MAX,
            batch_max: 512,
            delay: Nanos::from_secs(1),
            timeout: Nanos::from_secs(5),
        }
    }

    /// Reads the variables of the OpenTelemetry specification through `lookup`. `None` unless an endpoint is set, or
    /// when `OTEL_SDK_DISABLED` is true. An empty variable counts as unset.
    ///
    /// # Errors
    /// [`TelemetryError::Setting`] for a ratio outside 0 to 1, and for a protocol or a sampler that is not spoken here:
    /// a setting that is shrugged off is found out in production.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TelemetryError> {
        let read =
            |name: &str| lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, read(name)?)));
        let Some((_, endpoint)) =
            first(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"])
        else {
            return Ok(None);
        };
        if read("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let mut config = Self::to(endpoint);
        let protocols = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
        if let Some((name, protocol)) = first(protocols).filter(|(_, protocol)| protocol != "grpc") {
            return Err(TelemetryError::Setting(
                name,
                format!("only \"grpc\" is spoken, found {protocol:?}"),
            ));
        }
        let argument = read("OTEL_TRACES_SAMPLER_ARG");
        config.ratio = match read("OTEL_TRACES_SAMPLER").as_deref() {
            None | Some("parentbased_traceidratio") => argument.as_deref().map_or(Ok(1.0), ratio)?,
            Some("parentbased_always_on") => 1.0,
            Some("parentbased_always_off") => 0.0,
            Some(other) => {
                let fault = format!("expected a parent-based sampler, found {other:?}");
                return Err(TelemetryError::Setting("OTEL_TRACES_SAMPLER", fault));
            }
        };
        Ok(Some(config))
    }
}

fn ratio(text: &str) -> Result<f64, TelemetryError> {
    let fault = || format!("expected a number from 0 to 1, found {text:?}");
    let number: Option<f64> = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| TelemetryError::Setting("OTEL_TRACES_SAMPLER_ARG", fault()))
}

impl LogConfig {
    /// Makes this the process's logger.
    pub(super) fn install(&self) -> Result<(), TelemetryError> {
        let dispatch = self.dispatch(io::stderr, io::stderr().is_terminal())?;
        tracing::dispatcher::set_global_default(dispatch).map_err(|_| TelemetryError::LoggerTaken)
    }

    /// A logger that writes to `writer`.
    pub(super) fn dispatch<W>(&self, writer: W, colours: bool) -> Result<Dispatch, TelemetryError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let filter = EnvFilter::builder().parse(&self.filter);
        let filter = filter.map_err(|error| TelemetryError::Setting("log filter", error.to_string()))?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
        // A line that cannot be written is lost. To say so on stderr would panic when that is what is full, and take the task that
        // logged with it.
        let lines = lines.log_internal_errors(false);
        Ok(match self.format {
            LogFormat::Human => Dispatch::new(lines.with_ansi(colours).finish()),
            LogFormat::Json => Dispatch::new(lines.json().flatten_event(true).finish()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::Lines;

    fn read(variables: &[(&str, &str)]) -> Result<Option<ExportConfig>, TelemetryError> {
        ExportConfig::from_env(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_exported_unless_an_endpoint_is_set() {
        assert_eq!(read(&[]).expect("valid"), None);
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).expect("valid"), None);
        let here = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        assert_eq!(read(&[here, ("OTEL_SDK_DISABLED", "TRUE")]).expect("valid"), None);
        assert_eq!(read(&[here]).expect("valid"), Some(ExportConfig::to("http://collector:4317")));
        let special = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317");
        assert_eq!(read(&[here, special]).expect("valid").expect("set").endpoint, "http://traces:4317");
    }

    #[test]
    fn samplers_are_parent_based_and_ratios_are_checked() {
        let here = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        let ratio = |more: &[_]| read(&[&[here], more].concat()).map(|config| config.expect("set").ratio);
        assert_eq!(ratio(&[("OTEL_TRACES_SAMPLER_ARG", "0.25")]).expect("valid"), 0.25);
        assert_eq!(ratio(&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")]).expect("valid"), 0.0);
        for wrong in [
            ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
            ("OTEL_TRACES_SAMPLER_ARG", "NaN"),
            ("OTEL_TRACES_SAMPLER_ARG", "half"),
            ("OTEL_TRACES_SAMPLER", "always_on"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ] {
            let error = ratio(&[wrong]).expect_err("refused").to_string();
            assert!(error.starts_with(wrong.0) && error.contains(wrong.1), "{error}");
        }
    }

    fn logged(config: &LogConfig) -> String {
        let lines = Lines::default();
        let dispatch = config.dispatch(lines.writer(), false).expect("a valid filter");
        tracing::dispatcher::with_default(&dispatch, || {
            tracing::info!(target: "serve", answer = 42, "kept");
            tracing::debug!(target: "serve", "left out");
            tracing::warn!(target: "h2", "left out as well");
        });
        lines.text()
    }

    #[test]
    fn the_filter_decides_and_json_is_one_object_a_line() {
        let config = LogConfig { filter: "info,h2=error".to_owned(), format: LogFormat::Human };
        let text = logged(&config);
        assert!(text.contains("INFO serve: kept answer=42"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");

        let text = logged(&LogConfig { format: LogFormat::Json, ..config });
        let line: serde_json::Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(line["message"], "kept");
        assert_eq!(line["answer"], 42);
    }

    #[test]
    fn a_wrong_filter_is_an_error() {
        let config = LogConfig { filter: "serve=loud".to_owned(), ..LogConfig::default() };
        let error = config.dispatch(io::sink, false).expect_err("refused").to_string();
        assert!(error.starts_with("log filter: "), "{error}");
    }
}
