//! What is under way: steps and copies, whose slices are written when they are over, since a server that
//! goes away cuts them short.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::{StepRecord, TransferRecord};
use crate::units::SimTime;

#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Step { record: StepRecord, num_tokens: u32 },
    Transfer { replica: u32, record: TransferRecord },
}

impl Work {
    fn replica(&self) -> u32 {
        match self {
            Self::Step { record, .. } => record.replica,
            Self::Transfer { replica, .. } => *replica,
        }
    }

    fn begin(&self) -> SimTime {
        match self {
            Self::Step { record, .. } => record.scheduled_at,
            Self::Transfer { record, .. } => record.started_at,
        }
    }

    fn end(&self) -> SimTime {
        match self {
            Self::Step { record, .. } => record.started_at + SimTime(record.gpu_ns),
            Self::Transfer { record, .. } => record.finished_at,
        }
    }
}

/// Ordered by begin and by end; equals by when they were told of.
#[derive(Debug, Default)]
pub(super) struct Running {
    by_begin: BTreeMap<(SimTime, u64), Work>,
    by_end: BTreeSet<(SimTime, SimTime, u64)>,
    num_told: u64,
}

impl Running {
    pub fn push(&mut self, work: Work) {
        let key = (work.begin(), self.num_told);
        self.num_told += 1;
        self.by_begin.insert(key, work);
        self.by_end.insert((work.end(), key.0, key.1));
    }

    /// When the first of them began.
    pub fn first_begin(&self) -> Option<SimTime> {
        self.by_begin.first_key_value().map(|(key, _)| key.0)
    }

    /// Takes the next that is over by `now`, with its end.
    pub fn pop_over(&mut self, now: SimTime) -> Option<(Work, SimTime)> {
        let &(end, begin, number) = self.by_end.first()?;
        if end > now {
            return None;
        }
        self.by_end.pop_first();
        self.by_begin.remove(&(begin, number)).map(|work| (work, end))
    }

    /// Takes what a replica has under way.
    pub fn take_of(&mut self, replica: u32) -> Vec<Work> {
        let of = |(key, work): (&(SimTime, u64), &Work)| (work.replica() == replica).then_some((*key, *work));
        let taken: Vec<_> = self.by_begin.iter().filter_map(of).collect();
        for (key, work) in &taken {
            self.by_begin.remove(key);
            self.by_end.remove(&(work.end(), key.0, key.1));
        }
        taken.into_iter().map(|(_, work)| work).collect()
    }
}
