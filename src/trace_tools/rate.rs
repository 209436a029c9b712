//! The same requests at another rate.

use super::TraceError;
use crate::units::SimTime;
use crate::workload::trace::TraceRequest;

/// Divides the time and the think time of a request: with a rate of 2 all comes in half the time.
///
/// # Errors
/// The time would be too large.
pub fn scale_rate(request: &mut TraceRequest, rate: f64) -> Result<(), TraceError> {
    for time in [&mut request.at, &mut request.think_time].into_iter().flatten() {
        let ns = (time.as_ns() as f64 / rate).round();
        if ns >= u64::MAX as f64 {
            return Err(TraceError::Lacks {
                line: request.line,
                problem: format!("a time of {time} that divided by {rate} is more than 584 years"),
                instead: "take a larger rate".into(),
            });
        }
        *time = SimTime(ns as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::trace::TraceTokens;

    #[test]
    fn times_are_divided() {
        let row = || TraceRequest {
            think_time: Some(SimTime(7)),
            ..TraceRequest::new(1, Some(SimTime::from_ms(3)), TraceTokens::Length(1), TraceTokens::Length(1))
        };
        let mut fast = row();
        scale_rate(&mut fast, 2.0).unwrap();
        assert_eq!((fast.at, fast.think_time), (Some(SimTime(1_500_000)), Some(SimTime(4))));
        assert!(scale_rate(&mut TraceRequest { at: Some(SimTime::MAX), ..row() }, 0.5).is_err());
    }
}
