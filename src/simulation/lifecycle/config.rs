//! What can be set about failures.

use serde::{Deserialize, Serialize};

/// What becomes of the requests of a replica that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The router sends them again, as new requests: what they had got is thrown away.
    #[default]
    Retry,
    /// Their clients get an error.
    Report,
}
