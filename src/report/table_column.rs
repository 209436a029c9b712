//! What a column of a table holds.

/// The name of a column and what it holds.
pub(crate) type Column<N> = (N, Kind);

/// Empty cells of a table are null, where there may be some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number, never null.
    Count,
    /// A whole number.
    Int,
    /// A whole number from 0 to 2^64, such as a checksum.
    Id,
    Float,
    Text,
    Bool,
}
