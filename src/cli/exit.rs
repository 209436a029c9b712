//! What the exit codes mean.

use std::error::Error;
use std::io;

/// The command did what was asked.
pub(super) const OK: u8 = 0;
/// A comparison found a difference.
pub(super) const DIFFERENT: u8 = 1;
/// What was typed, or a file that was named, cannot be used; nothing was written.
pub(super) const BAD_INPUT: u8 = 2;
/// There is no GPU to measure.
pub(super) const NO_GPU: u8 = 3;

/// Whoever read our output has gone, which is their right.
pub(super) fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    let is_closed = |error: &(dyn Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    std::iter::successors(Some(error), |&error| error.source()).any(is_closed)
}
