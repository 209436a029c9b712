//! Names of conversations as numbers.

use xxhash_rust::xxh3::xxh3_64;

use super::json::Json;
use super::mistake::Mistake;

/// Reads the id of a conversation: a whole number as it is, a text as its hash, so that none has to
/// be kept.
pub(super) fn session_id(json: &mut Json<'_>) -> Result<u64, Mistake> {
    if json.peek() == Some(b'"') {
        return json.string().map(|text| xxh3_64(text.as_bytes()));
    }
    json.u64().ok_or_else(|| json.unexpected("a text or a whole number of 0 or more"))
}
