//! CPython's pickle, protocol 5, of the tuples that vLLM hashes, byte for byte as the C pickler
//! writes them (CPython 3.11: `Modules/_pickle.c`; opcodes: `Lib/pickletools.py`).
//!
//! Two things go beyond writing the values down. The stream is cut into frames, whose length
//! is written before them. And an object that occurs twice is written once and then named by its
//! index in the memo; what counts is the same object, not an equal one.

/// A frame is closed before the first object at which it has this many bytes.
const FRAME_SIZE_TARGET: usize = 64 * 1024;
/// A shorter frame is written without its head.
const FRAME_SIZE_MIN: usize = 4;
/// The frame opcode and its length of 8 bytes.
const FRAME_HEADER_SIZE: usize = 9;

const PROTO: [u8; 2] = [0x80, 5];
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_TUPLE: u8 = b')';
const TUPLE: u8 = b't';
const TUPLE1: u8 = 0x85;
const NONE: u8 = b'N';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const BININT: u8 = b'J';
const LONG1: u8 = 0x8a;
const SHORT_BINBYTES: u8 = b'C';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE: u8 = b'X';
const MEMOIZE: u8 = 0x94;
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';
const FRAME: u8 = 0x95;

/// A string of which a Python process has one object only, so that it is memoized by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharedString {
    /// A constant of vLLM's source.
    Constant(&'static str),
    /// CPython keeps one object per string of one character below U+0100.
    Character(char),
    /// And one empty string.
    Empty,
}

impl SharedString {
    fn of_value(text: &str) -> Option<Self> {
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (None, _) => Some(Self::Empty),
            (Some(character @ '\0'..='\u{ff}'), None) => Some(Self::Character(character)),
            _ => None,
        }
    }
}

/// Writes one object. Its buffers serve again for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Pickler {
    out: Vec<u8>,
    /// Where the head of the open frame begins.
    frame_start: Option<usize>,
    num_memoized: u32,
    /// The shared strings written so far with their memo indices; seldom more than a few.
    shared: Vec<(SharedString, u32)>,
}

impl Pickler {
    pub fn start(&mut self) {
        self.out.clear();
        self.out.extend_from_slice(&PROTO);
        self.frame_start = None;
        self.num_memoized = 0;
        self.shared.clear();
    }

    /// The whole stream.
    pub fn finish(&mut self) -> &[u8] {
        self.out.push(STOP);
        self.close_frame();
        &self.out
    }

    pub fn none(&mut self) {
        self.begin_object();
        self.out.push(NONE);
    }

    #[inline]
    pub fn unsigned(&mut self, value: u64) {
        self.begin_object();
        match value {
            0..=0xff => self.out.extend_from_slice(&[BININT1, value as u8]),
            0x100..=0xffff => {
                let [low, high] = (value as u16).to_le_bytes();
                self.out.extend_from_slice(&[BININT2, low, high]);
            }
            0x1_0000..=0x7fff_ffff => self.four_bytes(value as i32),
            _ => self.long(i128::from(value)),
        }
    }

    /// All negative integers of 32 bits have the form of four bytes.
    pub fn signed(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.unsigned(value),
            Err(_) => {
                self.begin_object();
                match i32::try_from(value) {
                    Ok(value) => self.four_bytes(value),
                    Err(_) => self.long(i128::from(value)),
                }
            }
        }
    }

    #[inline]
    fn four_bytes(&mut self, value: i32) {
        let [a, b, c, d] = value.to_le_bytes();
        self.out.extend_from_slice(&[BININT, a, b, c, d]);
    }

    /// Two's complement in as few bytes as keep the sign.
    fn long(&mut self, value: i128) {
        let sign_bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let len = (i128::BITS - sign_bits) / 8 + 1;
        self.out.extend_from_slice(&[LONG1, len as u8]);
        self.out.extend_from_slice(&value.to_le_bytes()[..len as usize]);
    }

    /// Bytes of an object of their own, at most 255.
    pub fn bytes(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= 255);
        self.begin_object();
        self.out.extend_from_slice(&[SHORT_BINBYTES, bytes.len() as u8]);
        self.out.extend_from_slice(bytes);
        self.memoize();
    }

    /// A string constant of vLLM's source.
    pub fn constant(&mut self, text: &'static str) {
        self.shared_string(SharedString::Constant(text), text);
    }

    /// A string that came with a request.
    pub fn string(&mut self, text: &str) {
        match SharedString::of_value(text) {
            Some(shared) => self.shared_string(shared, text),
            None => {
                self.begin_object();
                self.new_string(text);
            }
        }
    }

    fn shared_string(&mut self, shared: SharedString, text: &str) {
        self.begin_object();
        match self.shared.iter().find(|(known, _)| *known == shared) {
            Some(&(_, index @ 0..=0xff)) => self.out.extend_from_slice(&[BINGET, index as u8]),
            Some(&(_, index)) => {
                self.out.push(LONG_BINGET);
                self.out.extend_from_slice(&index.to_le_bytes());
            }
            None => {
                self.shared.push((shared, self.num_memoized));
                self.new_string(text);
            }
        }
    }

    fn new_string(&mut self, text: &str) {
        // As long as a frame: written outside of frames.
        let unframed = text.len() >= FRAME_SIZE_TARGET;
        if unframed {
            self.close_frame();
        }
        match u8::try_from(text.len()) {
            Ok(len) => self.out.extend_from_slice(&[SHORT_BINUNICODE, len]),
            Err(_) => {
                self.out.push(BINUNICODE);
                self.out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            }
        }
        self.out.extend_from_slice(text.as_bytes());
        if unframed {
            self.open_frame();
        }
        self.memoize();
    }

    /// Begins a tuple of `len` items, which follow, and then [`Self::end_tuple`].
    pub fn begin_tuple(&mut self, len: usize) {
        self.begin_object();
        if len > 3 {
            self.out.push(MARK);
        }
    }

    pub fn end_tuple(&mut self, len: usize) {
        match len {
            // One object serves all empty tuples; it is too short to be worth a memo entry.
            0 => return self.out.push(EMPTY_TUPLE),
            1..=3 => self.out.push(TUPLE1 + (len - 1) as u8),
            _ => self.out.push(TUPLE),
        }
        self.memoize();
    }

    fn memoize(&mut self) {
        self.out.push(MEMOIZE);
        self.num_memoized += 1;
    }

    #[inline]
    fn begin_object(&mut self) {
        match self.frame_start {
            Some(start) if self.out.len() - start - FRAME_HEADER_SIZE < FRAME_SIZE_TARGET => {}
            _ => {
                self.close_frame();
                self.open_frame();
            }
        }
    }

    fn open_frame(&mut self) {
        self.frame_start = Some(self.out.len());
        self.out.extend_from_slice(&[FRAME, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[cold]
    fn close_frame(&mut self) {
        let Some(start) = self.frame_start.take() else { return };
        let body = start + FRAME_HEADER_SIZE;
        let len = self.out.len() - body;
        if len < FRAME_SIZE_MIN {
            self.out.drain(start..body);
        } else {
            self.out[start + 1..body].copy_from_slice(&(len as u64).to_le_bytes());
        }
    }
}

/// The expected bytes are what CPython 3.11 writes for the object named beside them.
#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn pickle(write: impl FnOnce(&mut Pickler)) -> Vec<u8> {
        let mut pickler = Pickler::default();
        pickler.start();
        write(&mut pickler);
        pickler.finish().to_vec()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn length_and_sha256(stream: &[u8]) -> (usize, String) {
        (stream.len(), hex(&Sha256::digest(stream)))
    }

    /// A block of vLLM, with the parent `bytes(range(32))` and the tokens 1, 2, 3, 4.
    fn block_with_keys(p: &mut Pickler, keys: &[(&'static str, &str, Option<u64>)]) {
        p.begin_tuple(3);
        p.bytes(&std::array::from_fn::<u8, 32, _>(|i| i as u8));
        p.begin_tuple(4);
        (1..=4).for_each(|token| p.unsigned(token));
        p.end_tuple(4);
        p.begin_tuple(keys.len());
        for &(tag, text, offset) in keys {
            let len = 2 + usize::from(offset.is_some());
            p.begin_tuple(len);
            p.constant(tag);
            p.string(text);
            if let Some(offset) = offset {
                p.unsigned(offset);
            }
            p.end_tuple(len);
        }
        p.end_tuple(keys.len());
        p.end_tuple(3);
    }

    #[test]
    fn integers() {
        for (value, expected) in [
            (0, "80054b002e"),
            (255, "80054bff2e"),
            (256, "80059504000000000000004d00012e"),
            (65_535, "80059504000000000000004dffff2e"),
            (65_536, "80059506000000000000004a000001002e"),
            (0x7fff_ffff, "80059506000000000000004affffff7f2e"),
            (0x8000_0000, "80059508000000000000008a0500000080002e"),
            (0xffff_ffff, "80059508000000000000008a05ffffffff002e"),
            (u64::MAX >> 1, "8005950b000000000000008a08ffffffffffffff7f2e"),
            (1 << 63, "8005950c000000000000008a090000000000000080002e"),
            (u64::MAX, "8005950c000000000000008a09ffffffffffffffff002e"),
        ] {
            assert_eq!(hex(&pickle(|p| p.unsigned(value))), expected, "{value}");
        }
        for (value, expected) in [
            (0, "80054b002e"),
            (-1, "80059506000000000000004affffffff2e"),
            (-(1 << 31), "80059506000000000000004a000000802e"),
            (-(1 << 31) - 1, "80059508000000000000008a05ffffff7fff2e"),
            (-(1 << 39), "80059508000000000000008a0500000000802e"),
            (-(1 << 39) - 1, "80059509000000000000008a06ffffffff7fff2e"),
        ] {
            assert_eq!(hex(&pickle(|p| p.signed(value))), expected, "{value}");
        }
    }

    #[test]
    fn none_bytes_and_strings() {
        // Shorter than a frame head is worth.
        assert_eq!(hex(&pickle(Pickler::none)), "80054e2e");
        let bytes: [u8; 16] = std::array::from_fn(|i| i as u8);
        assert_eq!(
            hex(&pickle(|p| p.bytes(&bytes))),
            "80059514000000000000004310000102030405060708090a0b0c0d0e0f942e"
        );
        for (text, expected) in [
            (String::new(), "80059504000000000000008c00942e".to_owned()),
            ("x".into(), "80059505000000000000008c0178942e".into()),
            ("\u{2603}".into(), "80059507000000000000008c03e29883942e".into()),
            ("a".repeat(255), format!("80059503010000000000008cff{}942e", "61".repeat(255))),
            (
                "a".repeat(256),
                format!("8005950701000000000000580001000{}942e", "0".to_owned() + &"61".repeat(256)),
            ),
        ] {
            assert_eq!(hex(&pickle(|p| p.string(&text))), expected, "{text}");
        }
    }

    #[test]
    fn tuples() {
        for (len, expected) in [
            (0, "8005292e"),
            (1, "80059505000000000000004b0185942e"),
            (2, "80059507000000000000004b014b0286942e"),
            (3, "80059509000000000000004b014b024b0387942e"),
            (4, "8005950c00000000000000284b014b024b034b0474942e"),
        ] {
            let stream = pickle(|p| {
                p.begin_tuple(len);
                (1..=len as u64).for_each(|item| p.unsigned(item));
                p.end_tuple(len);
            });
            assert_eq!(hex(&stream), expected, "{len} items");
        }
    }

    #[test]
    fn only_strings_of_one_latin_1_character_or_none_are_one_object() {
        for (text, expected) in [
            ("", "80059508000000000000008c0094680086942e"),
            ("\u{e9}", "8005950a000000000000008c02c3a994680086942e"),
            ("\u{2603}", "8005950f000000000000008c03e29883948c03e298839486942e"),
            ("ab", "8005950d000000000000008c026162948c0261629486942e"),
        ] {
            let stream = pickle(|p| {
                p.begin_tuple(2);
                p.string(text);
                p.string(text);
                p.end_tuple(2);
            });
            assert_eq!(hex(&stream), expected, "{text}");
        }
    }

    /// `(("mm", "A1", -3), ("mm", "A1", 5))`, with two objects for the identifier.
    #[test]
    fn a_tag_is_one_object() {
        let stream = pickle(|p| {
            p.begin_tuple(2);
            for offset in [-3, 5] {
                p.begin_tuple(3);
                p.constant("mm");
                p.string("A1");
                p.signed(offset);
                p.end_tuple(3);
            }
            p.end_tuple(2);
        });
        assert_eq!(
            hex(&stream),
            "8005951f000000000000008c026d6d948c024131944afdffffff879468008c024131944b05879486942e"
        );
    }

    /// An item `y`, items `id0` to `id149`, then `x` twice and `y` again.
    #[test]
    fn memo_indices_above_255_take_four_bytes() {
        let identifiers: Vec<_> = (0..150).map(|i| format!("id{i}")).collect();
        let mut keys = vec![("mm", "y", Some(0))];
        keys.extend(identifiers.iter().zip(0..).map(|(identifier, i)| ("mm", identifier.as_str(), Some(i))));
        keys.extend([("mm", "x", Some(1)), ("mm", "x", Some(2)), ("mm", "y", Some(3))]);
        let stream = pickle(|p| block_with_keys(p, &keys));
        let sha256 = "a7066ccb37f9bbfbdc52474baa10abd30e3d166b7cb14aa3d6b0370daeffe186";
        assert_eq!(length_and_sha256(&stream), (2095, sha256.to_owned()));
    }

    #[test]
    fn strings_of_a_frame_and_more_are_written_outside_of_frames() {
        for (len, block_len, sha256) in [
            (65_534, 65_617, "3b737ae12930dd1b05ab7a03e5ec0bb0786c82ec776390e9a899e599851a91b7"),
            (65_535, 65_618, "7022ceda201ad7f101b5e24fa0e7b29f4bd9c00a221b3b942946c774276d200e"),
            (65_536, 65_628, "75e91338c82927ef5ef128e698cd394eb91bfd42d5c9c8683dc0ee0e80c17155"),
            (65_537, 65_629, "4a0915e59e1f3ca9ea6a146f2cec643ac123fa2bc6e8cadefecb84c9d0cd6b1c"),
            (200_000, 200_092, "578b2c6a0f5f5aca8fbcac27fbc3f4569f147258c3005017224112061f7d191d"),
        ] {
            let salt = "s".repeat(len);
            let stream = pickle(|p| block_with_keys(p, &[("cache_salt", &salt, None)]));
            assert_eq!(length_and_sha256(&stream), (block_len, sha256.to_owned()), "{len}");
        }
        for (len, text_len, sha256) in [
            (65_535, 65_553, "bdded84786d264a6147835be09eaab1400af0408da66fc6b8771b9e215007b5e"),
            (65_536, 65_545, "6a9c809ce84e4e489db2302b4bc559a71e9e1963e8108426d81553f2c3f1a251"),
        ] {
            let stream = pickle(|p| p.string(&"s".repeat(len)));
            assert_eq!(length_and_sha256(&stream), (text_len, sha256.to_owned()), "{len}");
        }
    }

    /// `(bytes(range(32)), tuple(range(start, start + n)), None)` around the ends of frames.
    #[test]
    fn frames_end_before_the_first_object_past_64_kib() {
        for (start, n, stream_len, sha256) in [
            (70_000, 13_098, 65_543, "2e99e5496d56f532016054933453065018c7d62686239a8e251dfca5d9451f89"),
            (70_000, 13_099, 65_548, "0de04432bee5a7fe3cf72f58d6bc36fbc9559ed480e11e64c1c783eba3fb14e5"),
            (70_000, 13_100, 65_562, "7adb5c705110e88bc1b2a414e88f96eb206f545aa3099aa0724b0700a7341c82"),
            (70_000, 13_101, 65_567, "9560adfdbffe9a233e0be8add9f7908a254652d2c1160f527b3e432d24948580"),
            (70_000, 16_384, 81_982, "97fc132160da501458b73fa36b6c3738ff6584e5486bad9d2fb45d9d67e0038a"),
            (70_000, 26_206, 131_092, "6d5ac9303fda3eb2e0663d5160c7b167bd32963d273bb87a6e8066ec024d7639"),
            (70_000, 26_207, 131_106, "62bb801f5ab0c8c1a82bef6c880a986f754d1071682fe8783d9a65b028f97704"),
            (0, 16_384, 48_949, "881f23df49a20aa841988f348b9691d0684095f9222864db5aa57b3d32febfc4"),
            (0, 32_768, 98_110, "a240de4eab7db0dbf5af9a470e550fd4a3bcd17fb13b866c50741ff855b93eb3"),
            (65_000, 65_536, 326_697, "d57c186c6d44d89d074c320262e35d029dc0acea84a8a982299f0ebaced4ebc9"),
            (
                4_294_967_290,
                9_362,
                65_596,
                "46b236a076db30be3997eefdd2e54fca17ac9d1139023be8c9490cf3c1314c39",
            ),
            (
                4_294_967_290,
                9_363,
                65_603,
                "89f1059fb0321ad65c293029da9a450bf0b45637aed75fc358d4ef6d1621e11c",
            ),
        ] {
            let stream = pickle(|p| {
                p.begin_tuple(3);
                p.bytes(&std::array::from_fn::<u8, 32, _>(|i| i as u8));
                p.begin_tuple(n);
                (start..start + n as u64).for_each(|token| p.unsigned(token));
                p.end_tuple(n);
                p.none();
                p.end_tuple(3);
            });
            assert_eq!(length_and_sha256(&stream), (stream_len, sha256.to_owned()), "{n} from {start}");
        }
    }
}
