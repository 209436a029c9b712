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
