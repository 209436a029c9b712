//! Images in the messages of a tenant's users.
//!
//! An image is a number of placeholder tokens before the text of its message. The placeholders of
//! all images are the same tokens; that blocks of two images differ is the doing of the extra key
//! in their hash, the image's identifier.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::prompt::MmItem;
use crate::workload::zipf::Zipf;
use crate::workload::{ConfigError, Distribution, rng};

/// How often messages come with images, and which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagesConfig {
    /// The chance of a message to come with images, 0 to 1.
    pub share_of_messages: f64,
    /// Of a message that comes with any.
    #[serde(default = "one_image")]
    pub images_per_message: Distribution,
    /// Placeholder tokens of an image.
    pub tokens: Distribution,
    /// Images that are sent again and again, by any user of the tenant. Without it no image is ever
    /// sent in two sessions.
    #[serde(default)]
    pub pool: Option<ImagePoolConfig>,
}

/// Images that many users send.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagePoolConfig {
    /// How many there are, at least 1.
    pub size: u32,
    /// The chance of an image to be one of the pool, 0 to 1.
    #[serde(default = "always")]
    pub share: f64,
    /// The n-th most popular image is sent in proportion to n to the power of minus this; 0 makes
    /// all equally popular.
    #[serde(default)]
    pub zipf_exponent: f64,
}

const fn one_image() -> Distribution {
    Distribution::Fixed(1.0)
}

const fn always() -> f64 {
    1.0
}

impl ImagesConfig {
    /// Checks the values; the error names the path of the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let share = |field: &str, value: f64| {
            let valid = (0.0..=1.0).contains(&value);
            if valid { Ok(()) } else { Err(ConfigError::new(field, value, "a number from 0 to 1")) }
        };
        share("share_of_messages", self.share_of_messages)?;
        self.images_per_message.validate_count().map_err(|error| error.within("images_per_message"))?;
        self.tokens.validate_count().map_err(|error| error.within("tokens"))?;
        let Some(pool) = self.pool else { return Ok(()) };
        share("pool.share", pool.share)?;
        if pool.size == 0 {
            return Err(ConfigError::new("pool.size", 0, "at least 1; leave `pool` out for none"));
        }
        if !(0.0..=100.0).contains(&pool.zipf_exponent) {
            let expected = "a number from 0 to 100; 0 makes all images equally popular";
            return Err(ConfigError::new("pool.zipf_exponent", pool.zipf_exponent, expected));
        }
        Ok(())
    }
}

/// The images of one session. A stream of random numbers of its own: the text of the session does
/// not depend on them.
pub(super) struct SessionImages {
    seed: u64,
    session: u64,
    tenant: u32,
    rng: ChaCha8Rng,
    num_new: u32,
}

impl SessionImages {
    pub fn new(seed: u64, session: u64, tenant: u32) -> Self {
        Self { seed, session, tenant, rng: rng::stream(seed, "chat images", session), num_new: 0 }
    }

    /// The images of the next message. Their offsets count from the begin of the message.
    pub fn draw(&mut self, config: &ImagesConfig) -> Vec<MmItem> {
        if !self.rng.random_bool(config.share_of_messages) {
            return Vec::new();
        }
        let mut offset_tokens = 0;
        let num_images = config.images_per_message.sample_count(&mut self.rng);
        let mut images = Vec::new();
        for _ in 0..num_images {
            let (identifier, length_tokens) = self.draw_one(config);
            images.push(MmItem { identifier, offset_tokens, length_tokens });
            offset_tokens = length_tokens.saturating_add(offset_tokens);
        }
        images
    }

    fn draw_one(&mut self, config: &ImagesConfig) -> (String, u32) {
        let tenant = self.tenant;
        if let Some(pool) = config.pool
            && self.rng.random_bool(pool.share)
        {
            let rank = 1 + Zipf::new(pool.size.into(), pool.zipf_exponent).sample(&mut self.rng);
            // An image has one size, whoever sends it.
            let mut image_rng = rng::stream(self.seed, &format!("chat images of tenant {tenant}"), rank);
            return (format!("{tenant}/popular/{rank}"), config.tokens.sample_count(&mut image_rng));
        }
        self.num_new += 1;
        let identifier = format!("{tenant}/session/{}/{}", self.session, self.num_new);
        (identifier, config.tokens.sample_count(&mut self.rng))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn config(pool: Option<ImagePoolConfig>) -> ImagesConfig {
        ImagesConfig {
            share_of_messages: 0.5,
            images_per_message: Distribution::Fixed(2.0),
            tokens: Distribution::Uniform { min: 100.0, max: 400.0 },
            pool,
        }
    }

    /// Images of messages of 1,000 sessions, by identifier how often.
    fn counts(config: &ImagesConfig) -> (usize, BTreeMap<(String, u32), u32>) {
        let mut counts = BTreeMap::new();
        let mut with_images = 0;
        for session in 0..1_000 {
            let images = SessionImages::new(7, session, 3).draw(config);
            with_images += usize::from(!images.is_empty());
            for pair in images.windows(2) {
                assert_eq!(pair[1].offset_tokens, pair[0].offset_tokens + pair[0].length_tokens);
            }
            for image in images {
                *counts.entry((image.identifier, image.length_tokens)).or_default() += 1;
            }
        }
        (with_images, counts)
    }

    #[test]
    fn every_image_is_new_without_a_pool() {
        let (with_images, counts) = counts(&config(None));
        // Half of 1,000, give or take four standard deviations.
        assert!((437..=563).contains(&with_images), "{with_images}");
        assert_eq!(counts.len(), 2 * with_images);
    }

    #[test]
    fn popular_images_come_again_with_the_same_size() {
        let pool = |zipf_exponent| Some(ImagePoolConfig { size: 10, share: 1.0, zipf_exponent });
        let (with_images, uniform) = counts(&config(pool(0.0)));
        assert_eq!(uniform.len(), 10, "an image has one size: {uniform:?}");
        let mean = 2 * with_images as u32 / 10;
        assert!(uniform.values().all(|&count| count.abs_diff(mean) < mean / 2), "{uniform:?}");
        // Of 1 + 1/2 + ... + 1/10 = 2.929 the first has 1, 34 %.
        let (_, zipf) = counts(&config(pool(1.0)));
        let first: u32 =
            zipf.iter().filter(|((name, _), _)| name == "3/popular/1").map(|(_, count)| count).sum();
        let share = f64::from(first) / f64::from(2 * with_images as u32);
        assert!((0.29..0.39).contains(&share), "{share}");
    }

    #[test]
    fn values_out_of_range_are_named() {
        let field = |config: ImagesConfig| config.validate().unwrap_err().field;
        assert_eq!(field(ImagesConfig { share_of_messages: 1.5, ..config(None) }), "share_of_messages");
        let pool = ImagePoolConfig { size: 0, share: 1.0, zipf_exponent: 0.0 };
        assert_eq!(field(config(Some(pool))), "pool.size");
        assert_eq!(field(config(Some(ImagePoolConfig { size: 1, share: f64::NAN, ..pool }))), "pool.share");
        let odd = ImagePoolConfig { size: 1, zipf_exponent: -1.0, ..pool };
        assert_eq!(field(config(Some(odd))), "pool.zipf_exponent");
    }
}
