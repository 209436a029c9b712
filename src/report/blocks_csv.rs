//! `blocks.csv` and `blocks.parquet`: a row for each block that lost its hash, and how long blocks lived. A long run has
//! millions of them, so another thread counts, formats and writes while the simulation goes on.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::log_histogram::LogHistogram;
use super::parquet::CountsWriter;
use crate::engine::kv_cache::BlockEviction;

/// The first only where there are several replicas.
const COLUMNS: [&str; 5] = ["replica", "evicted_at_us", "lifetime_us", "idle_us", "num_hits"];

/// In a chunk; each is of many rows.
const EVICTIONS_IN_CHUNK: usize = 4096;
/// Chunks under way; more would only hold memory.
const CHUNKS: usize = 8;
const BYTES_IN_WRITE: usize = 1 << 20;

/// Of all blocks that were handed out again.
#[derive(Clone, Debug, Default)]
pub(super) struct Residencies {
    pub lifetimes: LogHistogram,
    pub idle_times: LogHistogram,
}

impl Residencies {
    pub fn add(&mut self, eviction: &BlockEviction) {
        let count = u64::from(eviction.num_blocks);
        self.lifetimes.add_n(eviction.lifetime_ns, count);
        self.idle_times.add_n(eviction.idle_ns, count);
    }
}

pub(super) struct BlocksCsv {
    chunk: Vec<(u32, BlockEviction)>,
    full: SyncSender<Vec<(u32, BlockEviction)>>,
    empty: Receiver<Vec<(u32, BlockEviction)>>,
    writer: JoinHandle<io::Result<Residencies>>,
}

impl BlocksCsv {
    /// Both files; or none of them, where blocks are only counted. `is_fleet` adds a column with the replica.
    pub fn create(path: Option<&Path>, is_fleet: bool) -> io::Result<Self> {
        let columns = if is_fleet { &COLUMNS[..] } else { &COLUMNS[1..] };
        let mut table = path.map(|path| Table::create(path, columns)).transpose()?;
        let (full, to_write) = sync_channel::<Vec<(u32, BlockEviction)>>(CHUNKS);
        let (give_back, empty) = sync_channel(CHUNKS);
        let writer = std::thread::spawn(move || {
            let mut residencies = Residencies::default();
            for mut chunk in to_write {
                for (replica, eviction) in chunk.drain(..) {
                    residencies.add(&eviction);
                    if let Some(table) = table.as_mut().filter(|_| eviction.cached) {
                        let row = &row(replica, &eviction)[COLUMNS.len() - columns.len()..];
                        table.push(row, eviction.num_blocks)?;
                    }
                }
                // When the run has ended nobody takes it back.
                let _ = give_back.try_send(chunk);
            }
            table.map_or(Ok(()), Table::finish)?;
            Ok(residencies)
        });
        Ok(Self { chunk: Vec::with_capacity(EVICTIONS_IN_CHUNK), full, empty, writer })
    }

    pub fn push(&mut self, replica: u32, evictions: &[BlockEviction]) {
        self.chunk.extend(evictions.iter().map(|eviction| (replica, *eviction)));
        if self.chunk.len() >= EVICTIONS_IN_CHUNK {
            let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(2 * EVICTIONS_IN_CHUNK));
            // The writer only goes away after an error, which `finish` returns.
            let _ = self.full.send(std::mem::replace(&mut self.chunk, next));
        }
    }

    pub fn finish(self) -> io::Result<Residencies> {
        let Self { chunk, full, empty, writer } = self;
        let _ = full.send(chunk);
        drop((full, empty));
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer of blocks.csv stopped")))
    }
}

/// Rows on their way to the two files.
struct Table {
    file: File,
    text: Vec<u8>,
    parquet: CountsWriter,
}

impl Table {
    fn create(path: &Path, columns: &[&'static str]) -> io::Result<Self> {
        let mut text = columns.join(",").into_bytes();
        text.push(b'\n');
        let parquet = CountsWriter::create(&path.with_extension("parquet"), columns)?;
        Ok(Self { file: File::create(path)?, text, parquet })
    }

    /// The same row for each of some blocks.
    fn push(&mut self, row: &[u64], num_blocks: u32) -> io::Result<()> {
        push_rows(&mut self.text, row, num_blocks);
        self.parquet.push(row, num_blocks)?;
        if self.text.len() >= BYTES_IN_WRITE {
            self.file.write_all(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.write_all(&self.text)?;
        self.parquet.finish()
    }
}

/// What [`COLUMNS`] say.
fn row(replica: u32, eviction: &BlockEviction) -> [u64; 5] {
    let us = |ns: u64| ns / 1_000;
    let BlockEviction { evicted_at_ns, lifetime_ns, idle_ns, num_hits, .. } = *eviction;
    [u64::from(replica), us(evicted_at_ns), us(lifetime_ns), us(idle_ns), u64::from(num_hits)]
}

/// A row for each block.
fn push_rows(text: &mut Vec<u8>, row: &[u64], num_blocks: u32) {
    let start = text.len();
    let mut digits = itoa::Buffer::new();
    for value in row {
        text.extend_from_slice(digits.format(*value).as_bytes());
        text.push(b',');
    }
    text.pop();
    text.push(b'\n');
    let end = text.len();
    for _ in 1..num_blocks {
        text.extend_from_within(start..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_whole_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blocks.csv");
        let mut blocks = BlocksCsv::create(Some(&path), false).unwrap();
        let eviction = |at: u64, cached| BlockEviction {
            evicted_at_ns: at * 1_000,
            lifetime_ns: 9_000,
            idle_ns: 2_500,
            num_hits: 3,
            cached,
            num_blocks: 1 + (at % 2) as u32,
        };
        for at in 0..100_000 {
            blocks.push(0, &[eviction(at, true), eviction(at, false)]);
        }
        let residencies = blocks.finish().unwrap();
        // Blocks that had no hash lived too.
        assert_eq!(residencies.lifetimes.summary().count, 300_000);
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("evicted_at_us,lifetime_us,idle_us,num_hits"));
        // One block evicted at each even time, two at each odd one.
        let times = (0..100_000).flat_map(|at| std::iter::repeat_n(at, 1 + at % 2));
        assert!(lines.eq(times.map(|at| format!("{at},9,2,3"))));
    }
}
