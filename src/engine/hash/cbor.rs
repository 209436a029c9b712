//! Canonical CBOR of the tuples that vLLM hashes (RFC 8949, section 4.2; vLLM calls
//! `cbor2.dumps(.., canonical=True)`). Tuples are arrays; lengths and integers have their shortest
//! form, which is the only one `minicbor` writes.

use std::convert::Infallible;
use std::ops::Range;

use minicbor::Encoder;
use minicbor::encode::Error;

use super::block_hash::BlockDigest;
use super::extra_keys::{BlockExtraKeys, ExtraKey};
use crate::prompt::TokenRuns;

/// Writing into a vector cannot fail.
fn infallible<T>(result: Result<T, Error<Infallible>>) -> T {
    result.expect("a vector takes every byte")
}

pub(super) fn encode_text(text: &str, out: &mut Vec<u8>) {
    infallible(Encoder::new(out).str(text).map(|_| ()));
}

pub(super) fn encode_block(
    parent: &BlockDigest,
    tokens: &TokenRuns,
    range: Range<u32>,
    extra: BlockExtraKeys<'_>,
    out: &mut Vec<u8>,
) {
    infallible(block(parent, tokens, range, extra, &mut Encoder::new(out)));
}

/// The extra keys alone, None if there are none.
pub(super) fn encode_extra_keys(keys: &[ExtraKey<'_>], out: &mut Vec<u8>) {
    infallible(extra_keys(keys, &mut Encoder::new(out)));
}

type VecEncoder<'a> = Encoder<&'a mut Vec<u8>>;

fn block(
    parent: &BlockDigest,
    tokens: &TokenRuns,
    range: Range<u32>,
    extra: BlockExtraKeys<'_>,
    e: &mut VecEncoder<'_>,
) -> Result<(), Error<Infallible>> {
    e.array(3)?.bytes(parent.as_bytes())?;
    e.array(range.len() as u64)?;
    for run in tokens.slice(range.start, range.end) {
        for i in 0..u64::from(run.len) {
            e.u64(run.start.wrapping_add(i))?;
        }
    }
    if extra.lookahead_token_ids.is_empty() {
        return extra_keys(extra.keys, e);
    }
    e.array(1 + extra.lookahead_token_ids.len() as u64)?;
    extra_keys(extra.keys, e)?;
    for &token in extra.lookahead_token_ids {
        e.u64(token)?;
    }
    Ok(())
}

fn extra_keys(keys: &[ExtraKey<'_>], e: &mut VecEncoder<'_>) -> Result<(), Error<Infallible>> {
    if keys.is_empty() {
        e.null()?;
        return Ok(());
    }
    e.array(keys.len() as u64)?;
    for key in keys {
        match *key {
            ExtraKey::Lora { name, path } => e.array(3)?.str(key.tag())?.str(name)?.str(path)?,
            ExtraKey::Mm { identifier, offset_tokens } => {
                e.array(3)?.str(key.tag())?.str(identifier)?.i64(offset_tokens)?
            }
            ExtraKey::CacheSalt(salt) => e.array(2)?.str(key.tag())?.str(salt)?,
            ExtraKey::PromptEmbeds(digest) => e.array(2)?.str(key.tag())?.bytes(&digest)?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(tokens: &[u64], extra: BlockExtraKeys<'_>) -> Vec<u8> {
        let tokens: TokenRuns = tokens.iter().copied().collect();
        let mut out = Vec::new();
        encode_block(&BlockDigest::from([0xaa; 16]), &tokens, 0..tokens.len(), extra, &mut out);
        // An array of three whose first item is a byte string of 16.
        assert_eq!(out[..18], [&[0x83, 0x50][..], &[0xaa; 16]].concat());
        out.split_off(18)
    }

    /// By hand from RFC 8949, section 3.
    #[test]
    fn integers_have_their_shortest_form() {
        let tokens = [23, 24, 255, 256, 65_535, 65_536, 0xffff_ffff, 0x1_0000_0000];
        let expected: &[&[u8]] = &[
            &[0x88],
            &[0x17],
            &[0x18, 24],
            &[0x18, 255],
            &[0x19, 1, 0],
            &[0x19, 0xff, 0xff],
            &[0x1a, 0, 1, 0, 0],
            &[0x1a, 0xff, 0xff, 0xff, 0xff],
            &[0x1b, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0xf6],
        ];
        assert_eq!(encode(&tokens, BlockExtraKeys::default()), expected.concat());
    }

    #[test]
    fn keys_are_arrays_and_the_lookahead_wraps_them() {
        let keys = [ExtraKey::Mm { identifier: "\u{e9}", offset_tokens: -25 }, ExtraKey::CacheSalt("s")];
        let extra = BlockExtraKeys { keys: &keys, lookahead_token_ids: &[5] };
        let expected: &[&[u8]] = &[
            &[0x81, 7],
            &[0x82, 0x82],
            &[0x83, 0x62],
            b"mm",
            &[0x62, 0xc3, 0xa9],
            // -1 - 24
            &[0x38, 24],
            &[0x82, 0x6a],
            b"cache_salt",
            &[0x61],
            b"s",
            &[5],
        ];
        assert_eq!(encode(&[7], extra), expected.concat());
        let without_keys = BlockExtraKeys { keys: &[], lookahead_token_ids: &[5, 6] };
        assert_eq!(encode(&[7], without_keys), [0x81, 7, 0x83, 0xf6, 5, 6]);
    }
}
