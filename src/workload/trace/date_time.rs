//! Dates and times of logs.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::units::SimTime;

/// The time since 1970 that an ISO 8601 date and time says, in UTC unless it names an offset; `None`
/// if it is none, or before 1970.
pub(super) fn parse_date_time(text: &str) -> Option<SimTime> {
    let timestamp = match text.parse::<Timestamp>() {
        Ok(timestamp) => timestamp,
        Err(_) => TimeZone::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()?,
    };
    u64::try_from(timestamp.as_nanosecond()).ok().map(SimTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_with_and_without_an_offset() {
        let ns = |text: &str| parse_date_time(text).map(SimTime::as_ns);
        // date -u -d '2023-11-16 18:17:03' +%s
        assert_eq!(ns("2023-11-16 18:17:03.9799600"), Some(1_700_158_623_979_960_000));
        assert_eq!(ns("2024-05-10 00:00:00.009930+00:00"), Some(1_715_299_200_009_930_000));
        assert_eq!(ns("2024-05-10T02:00:00.009930+02:00"), Some(1_715_299_200_009_930_000));
        assert_eq!(ns("2024-05-10T00:00:00Z"), Some(1_715_299_200_000_000_000));
        for wrong in ["", "NaN", "2024-13-01 00:00:00", "1969-12-31 23:59:59", "yesterday", "1715299200"] {
            assert_eq!(ns(wrong), None, "{wrong}");
        }
    }
}
