//! Fewer sessions of a trace, each whole.

use rand::seq::SliceRandom;

use super::{SessionFinder, TraceError};
use crate::workload::rng;
use crate::workload::trace::TraceReader;

/// The sessions of a trace, from a first pass over it.
#[derive(Debug, Default)]
pub struct SessionTable {
    /// Of each request in the order of the trace.
    pub session_of: Vec<u32>,
    /// The requests of each session.
    pub requests: Vec<u64>,
    /// Those that the trace does not tell.
    pub num_estimated: u32,
}

impl SessionTable {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// A row that cannot be read, or too many distinct prompts.
    pub fn read(reader: &mut dyn TraceReader) -> Result<Self, TraceError> {
        let mut finder = SessionFinder::default();
        let mut table = Self::default();
        while let Some(request) = reader.next_request()? {
            let session = finder.session_of(&request, reader.hash_id_tokens())?;
            if session as usize == table.requests.len() {
                table.requests.push(0);
            }
            table.requests[session as usize] += 1;
            table.session_of.push(session);
        }
        table.num_estimated = finder.num_estimated();
        Ok(table)
    }
}

/// How much of a trace to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleSize {
    /// This share of the sessions, from 0 to 1, to the nearest whole number.
    Fraction(f64),
    /// At most so many requests.
    Requests(u64),
}

/// Which sessions to keep: taken in random order, those that still fit.
pub fn sample(table: &SessionTable, size: SampleSize, seed: u64) -> Vec<bool> {
    let order = shuffled(table.requests.len(), seed, "trace sample");
    let mut keep = vec![false; order.len()];
    match size {
        SampleSize::Fraction(fraction) => {
            let count = (fraction * order.len() as f64).round() as usize;
            order.iter().take(count).for_each(|&session| keep[session] = true);
        }
        SampleSize::Requests(most) => {
            let mut left = most;
            for session in order {
                if table.requests[session] <= left {
                    left -= table.requests[session];
                    keep[session] = true;
                }
            }
        }
    }
    keep
}

/// The numbers below `count` in random order.
pub(super) fn shuffled(count: usize, seed: u64, name: &str) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut rng::stream(seed, name, 0));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(requests: &[u64]) -> SessionTable {
        SessionTable { requests: requests.to_vec(), ..SessionTable::default() }
    }

    #[test]
    fn a_fraction_is_of_sessions() {
        let table = table(&[1; 1000]);
        let kept = |fraction, seed| sample(&table, SampleSize::Fraction(fraction), seed);
        let count = |keep: Vec<bool>| keep.iter().filter(|&&kept| kept).count();
        assert_eq!([0.0, 0.0004, 0.25, 1.0].map(|fraction| count(kept(fraction, 1))), [0, 0, 250, 1000]);
        assert_eq!(kept(0.25, 1), kept(0.25, 1));
        assert_ne!(kept(0.25, 1), kept(0.25, 2));
        // More of the same.
        assert!(kept(0.25, 1).iter().zip(kept(0.5, 1)).all(|(&less, more)| more || !less));
    }

    #[test]
    fn no_more_requests_than_asked_for() {
        let table = table(&[3, 5, 2, 50, 1, 1]);
        for most in 0..70 {
            let keep = sample(&table, SampleSize::Requests(most), 1);
            let kept: u64 = table.requests.iter().zip(&keep).filter(|(_, kept)| **kept).map(|(n, _)| n).sum();
            assert!(kept <= most);
            // What was left out would not have fitted.
            assert!(
                table
                    .requests
                    .iter()
                    .zip(&keep)
                    .all(|(n, kept)| *kept || kept == &false && n + kept_sum(&table, &keep) > most)
            );
        }
    }

    fn kept_sum(table: &SessionTable, keep: &[bool]) -> u64 {
        table.requests.iter().zip(keep).filter(|(_, kept)| **kept).map(|(n, _)| n).sum()
    }
}
