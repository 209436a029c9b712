//! Named streams of random numbers.
//!
//! Each subject draws from a stream of its own, so that one more draw in one place shifts nothing
//! elsewhere, and two runs with the same seed see the same users whatever the server does to them
//! (common random numbers).

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// Stream number `index` of the streams called `name` under `seed`.
///
/// Seed and name make the ChaCha key (by SHA-256), `index` is ChaCha's own stream number: streams
/// never overlap.
pub fn stream(seed: u64, name: &str, index: u64) -> ChaCha8Rng {
    let key = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name).finalize();
    let mut rng = ChaCha8Rng::from_seed(key.into());
    rng.set_stream(index);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn a_stream_is_repeatable_and_differs_in_seed_name_and_index() {
        let first = |seed, name, index| stream(seed, name, index).next_u64();
        assert_eq!(first(7, "a", 3), first(7, "a", 3));
        let draws: BTreeSet<u64> =
            [first(7, "a", 3), first(8, "a", 3), first(7, "b", 3), first(7, "a", 4)].into();
        assert_eq!(draws.len(), 4);
    }
}
