//! Health: whether the generator was the bottleneck of its own run.

use base::Nanos;

use crate::latency::Latencies;

/// Largest 99th percentile of the clock error of a valid run, in model time: 1 % of the objective.
pub const CLOCK_ERROR_P99_MAX: Nanos = Nanos::from_millis(3);
/// Largest share of the schedule that a valid run may leave unsent.
pub const UNSENT_RATIO_MAX: f64 = 0.001;

/// Why a run is not valid; empty when it is. A run without any sample is not valid.
pub(crate) fn faults(clock_error: &Latencies, unsent_ratio: Option<f64>) -> Vec<String> {
    let mut faults = Vec::new();
    let bound_ms = CLOCK_ERROR_P99_MAX.as_millis_f64();
    match clock_error.summary().p99 {
        Some(p99) if p99 <= bound_ms => {}
        Some(p99) => faults.push(format!("clock error p99 is {p99:.3} ms, the bound is {bound_ms:.3} ms")),
        None => faults.push("no operation of a measured stage was sent".to_owned()),
    }
    match unsent_ratio {
        Some(ratio) if ratio <= UNSENT_RATIO_MAX => {}
        Some(ratio) => faults.push(format!(
            "{:.3} % of the schedule was not sent, the bound is {:.1} %",
            ratio * 100.0,
            UNSENT_RATIO_MAX * 100.0
        )),
        None => faults.push("no operation was scheduled in a measured stage".to_owned()),
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: &[u64]) -> Latencies {
        let mut sample = Latencies::default();
        millis.iter().for_each(|millis| sample.record(Nanos::from_millis(*millis)));
        sample
    }

    #[test]
    fn a_generator_within_its_bounds_is_valid_and_beyond_them_is_not() {
        assert!(faults(&sample(&[2]), Some(0.001)).is_empty());
        let late = faults(&sample(&[4]), Some(0.0));
        assert_eq!(late.len(), 1);
        assert!(late[0].contains("clock error") && late[0].contains("4.0"), "{late:?}");
        let dropped = faults(&sample(&[0]), Some(0.0011));
        assert_eq!(dropped, ["0.110 % of the schedule was not sent, the bound is 0.1 %"]);
        assert_eq!(faults(&sample(&[9]), Some(0.5)).len(), 2, "every reason is named");
    }

    #[test]
    fn no_data_is_not_valid() {
        assert_eq!(faults(&sample(&[]), None).len(), 2);
        assert_eq!(faults(&sample(&[]), Some(f64::NAN)).len(), 2);
    }
}
