//! The requests that the scheduler knows, in slots that are used again (vLLM: `Scheduler.requests`).

use std::ops::{Index, IndexMut};

use super::request::Request;

/// Where a request lies in the table, for as long as the table holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestSlot(pub u32);

impl RequestSlot {
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Default)]
pub(super) struct RequestTable {
    slots: Vec<Option<Request>>,
    free: Vec<RequestSlot>,
}

impl RequestTable {
    pub fn insert(&mut self, request: Request) -> RequestSlot {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot.index()] = Some(request);
                slot
            }
            None => {
                self.slots.push(Some(request));
                RequestSlot(self.slots.len() as u32 - 1)
            }
        }
    }

    pub fn remove(&mut self, slot: RequestSlot) -> Option<Request> {
        let request = self.slots[slot.index()].take();
        if request.is_some() {
            self.free.push(slot);
        }
        request
    }

    /// The request that was put into the slot under this id, unless it has left the table since.
    #[inline]
    pub fn get(&self, slot: RequestSlot, id: u64) -> Option<&Request> {
        self.slots[slot.index()].as_ref().filter(|request| request.id == id)
    }

    #[inline]
    pub fn get_mut(&mut self, slot: RequestSlot, id: u64) -> Option<&mut Request> {
        self.slots[slot.index()].as_mut().filter(|request| request.id == id)
    }

    /// Linear in the number of slots: for what is rare, such as an abort.
    pub fn find(&self, id: u64) -> Option<RequestSlot> {
        let at = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|request| request.id == id))?;
        Some(RequestSlot(at as u32))
    }

    /// The requests in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (RequestSlot, &Request)> + '_ {
        let slots = (0..).map(RequestSlot).zip(&self.slots);
        slots.filter_map(|(slot, request)| Some((slot, request.as_ref()?)))
    }

    /// Slots that are in use or have been.
    pub fn num_slots(&self) -> usize {
        self.slots.len()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Index<RequestSlot> for RequestTable {
    type Output = Request;

    #[inline]
    fn index(&self, slot: RequestSlot) -> &Request {
        self.slots[slot.index()].as_ref().expect("a queue names only requests of the table")
    }
}

impl IndexMut<RequestSlot> for RequestTable {
    #[inline]
    fn index_mut(&mut self, slot: RequestSlot) -> &mut Request {
        self.slots[slot.index()].as_mut().expect("a queue names only requests of the table")
    }
}
