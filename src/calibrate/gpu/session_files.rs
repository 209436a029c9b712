//! What a calibration leaves behind beside its tables: all that is known of each measurement, and a
//! manifest.

use std::collections::BTreeSet;

use serde_json::json;

use super::device::{DeviceKind, Kernel};
use super::session::{Measurement, Outcome, SessionReport};
use super::table::{Origin, csv_text};

/// Everything about each operation of the plan, the failed ones too.
pub(super) fn measurements_text(report: &SessionReport) -> String {
    let head = [
        "op",
        "shape",
        "kernel",
        "dtype",
        "outcome",
        "reason",
        "time_us",
        "spread",
        "launches_per_group",
        "repeats",
        "error",
        "sets",
        "cold_l2",
        "drift",
        "sm_clock_mhz",
        "memory_clock_mhz",
        "temperature_c",
        "power_w",
        "throttle_reasons",
    ];
    let rows: Vec<Vec<String>> = report.measurements.iter().map(measurement_row).collect();
    csv_text(&head, &rows)
}

fn measurement_row(measurement: &Measurement) -> Vec<String> {
    fn text<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let share = |value: Option<f64>| value.map(|value| format!("{value:.5}"));
    let (outcome, reason, timing) = match &measurement.outcome {
        Outcome::Timed(timing) => ("timed", "", Some(timing)),
        Outcome::Wrong => ("wrong", "the result is not that of the reference", None),
        Outcome::LeftOut(reason) => ("left out", reason.as_str(), None),
        Outcome::Failed(reason) => ("failed", reason.as_str(), None),
    };
    let kernel = measurement.kernel.as_ref();
    let telemetry = &measurement.telemetry;
    vec![
        measurement.operation.name().to_owned(),
        measurement.operation.to_string(),
        text(kernel.map(|kernel| &kernel.name)),
        text(kernel.map(|kernel| kernel.dtype.name())),
        outcome.to_owned(),
        reason.to_owned(),
        text(timing.map(|timing| format!("{:.3}", timing.median_us))),
        text(share(timing.map(|timing| timing.spread))),
        text(timing.map(|timing| timing.launches_per_group)),
        text(timing.map(|timing| timing.repeats)),
        text(measurement.error.map(|error| format!("{error:.2e}"))),
        measurement.sets.to_string(),
        measurement.cold_l2.to_string(),
        text(share(measurement.drift)),
        text(telemetry.sm_clock_mhz),
        text(telemetry.memory_clock_mhz),
        text(telemetry.temperature_c),
        text(telemetry.power_w.map(|power| format!("{power:.0}"))),
        telemetry.throttle_reasons.join(" "),
    ]
}

pub(super) fn manifest_text(origin: &Origin<'_>) -> String {
    let SessionReport { identity, measurements, .. } = origin.report;
    let count = |wanted: fn(&Outcome) -> bool| measurements.iter().filter(|m| wanted(&m.outcome)).count();
    let kernels: BTreeSet<&str> =
        origin.report.timed().map(|(_, Kernel { name, .. }, _)| name.as_str()).collect();
    let manifest = json!({
        "made_by": origin.framework,
        "gpu": origin.gpu,
        "device": identity.name,
        "backend": identity.backend,
        "driver": identity.driver,
        "software_renderer": identity.kind == DeviceKind::Software,
        "memory_bytes": identity.memory_bytes,
        "l2_bytes": identity.l2_bytes,
        "num_sms": identity.num_sms,
        "shared_with": identity.shared_with,
        "effort": origin.report.effort.name(),
        "clock": identity.clock,
        "device_s": origin.report.device_s,
        "reference_us": origin.report.reference_us,
        "repeated_batches": origin.report.repeated_batches,
        "kernels": kernels,
        "timed": count(|outcome| matches!(outcome, Outcome::Timed(_))),
        "wrong": count(|outcome| matches!(outcome, Outcome::Wrong)),
        "left_out": count(|outcome| matches!(outcome, Outcome::LeftOut(_))),
        "failed": count(|outcome| matches!(outcome, Outcome::Failed(_))),
    });
    format!("{manifest:#}\n")
}
