//! Which requests of a trace belong to one conversation: what the trace says, or else what the
//! prompts tell.

use rustc_hash::FxHashMap;

use crate::reuse::{BlockChains, TooManyBlocks};
use crate::workload::trace::{TraceRequest, TraceTokens};

/// Compared in these pieces where the trace does not say how far sharing is known.
const PIECE_TOKENS: u32 = 16;

const NONE: u32 = u32::MAX;

/// Gives each request a session: numbers from 0 in the order in which sessions begin.
///
/// Requests with a session of the trace belong to that. Others are taken to go on from an earlier
/// request, if one has all of that one's prompt in front of its own, in whole pieces, and is longer.
/// Where several have, it is the one with the longest prompt, and of these the last. Nobody else can
/// then go on from that one, so that many who share a system prompt do not become one session. What is
/// estimated so may be wrong where two users type the same.
#[derive(Debug, Default)]
pub struct SessionFinder {
    by_id: FxHashMap<u64, u32>,
    /// Of the first prompt on.
    chains: Option<BlockChains>,
    /// By number of the last whole piece of a prompt: who can be gone on from there.
    open_ends: Vec<OpenEnd>,
    num_sessions: u32,
    num_estimated: u32,
    num_unknown: u32,
}

#[derive(Clone, Copy, Debug)]
struct OpenEnd {
    session: u32,
    prompt_tokens: u32,
}

impl SessionFinder {
    /// The session of the next request; `hash_id_tokens` is the trace's.
    ///
    /// # Errors
    /// The prompts have too many pieces.
    pub fn session_of(
        &mut self,
        request: &TraceRequest,
        hash_id_tokens: Option<u32>,
    ) -> Result<u32, TooManyBlocks> {
        if let Some(id) = request.session {
            let next = self.num_sessions;
            let session = *self.by_id.entry(id).or_insert(next);
            self.num_sessions += u32::from(session == next);
            return Ok(session);
        }
        let goes_on = self.goes_on_from(request, hash_id_tokens)?;
        Ok(goes_on.unwrap_or_else(|| {
            self.num_sessions += 1;
            match request.prompt {
                TraceTokens::Known(_) => self.num_estimated += 1,
                TraceTokens::Length(_) => self.num_unknown += 1,
            }
            self.num_sessions - 1
        }))
    }

    fn goes_on_from(
        &mut self,
        request: &TraceRequest,
        hash_id_tokens: Option<u32>,
    ) -> Result<Option<u32>, TooManyBlocks> {
        let TraceTokens::Known(prompt) = &request.prompt else { return Ok(None) };
        let chains =
            self.chains.get_or_insert_with(|| BlockChains::new(hash_id_tokens.unwrap_or(PIECE_TOKENS)));
        let chain = chains.of(prompt, &request.extras)?;
        let Some(last) = chain.last() else { return Ok(None) };
        let end = chain.iter().map(|block| block.0 as usize + 1).max().unwrap_or(0);
        if end > self.open_ends.len() {
            self.open_ends.resize(end, OpenEnd { session: NONE, prompt_tokens: 0 });
        }
        let before = chain.iter().rev().map(|block| block.0 as usize).find(|&block| {
            let open = self.open_ends[block];
            open.session != NONE && open.prompt_tokens < prompt.len()
        });
        let before = before.map(|block| std::mem::replace(&mut self.open_ends[block].session, NONE));
        // A new session has the number that the caller gives it.
        let session = before.unwrap_or(self.num_sessions);
        self.open_ends[last.0 as usize] = OpenEnd { session, prompt_tokens: prompt.len() };
        Ok(before)
    }

    /// The number of sessions so far.
    pub fn num_sessions(&self) -> u32 {
        self.num_sessions
    }

    /// Those of them that the trace does not tell and the prompts do.
    pub fn num_estimated(&self) -> u32 {
        self.num_estimated
    }

    /// Those that nothing tells: requests without a session of whose prompts only the length is known.
    pub fn num_unknown(&self) -> u32 {
        self.num_unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::TokenRuns;

    fn request(session: Option<u64>, runs: &[(u64, u32)]) -> TraceRequest {
        let mut prompt = TokenRuns::new();
        runs.iter().for_each(|&(start, len)| prompt.push_run(start, len));
        TraceRequest {
            session,
            ..TraceRequest::new(1, None, TraceTokens::Known(prompt), TraceTokens::Length(1))
        }
    }

    fn sessions(requests: &[TraceRequest]) -> Vec<u32> {
        let mut finder = SessionFinder::default();
        requests.iter().map(|request| finder.session_of(request, None).unwrap()).collect()
    }

    #[test]
    fn what_the_trace_says_counts() {
        let ids = [Some(9), Some(4), Some(9), None, Some(4)];
        assert_eq!(sessions(&ids.map(|id| request(id, &[(0, 64)]))), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn conversations_that_share_a_system_prompt_are_told_apart() {
        let system = (0, 320);
        let turns = [
            request(None, &[system, (1000, 40)]),
            request(None, &[system, (2000, 40)]),
            request(None, &[system, (1000, 120)]),
            request(None, &[system, (2000, 90)]),
            request(None, &[system, (1000, 120), (5000, 10)]),
        ];
        assert_eq!(sessions(&turns), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn only_one_goes_on_from_a_short_prompt() {
        let system = (0, 320);
        let turns = [
            request(None, &[system, (1000, 4)]),
            request(None, &[system, (2000, 40)]),
            request(None, &[system, (3000, 40)]),
        ];
        assert_eq!(sessions(&turns), [0, 0, 1]);
    }

    #[test]
    fn the_same_prompt_again_is_another_session() {
        let prompt = request(None, &[(0, 320)]);
        assert_eq!(sessions(&[prompt.clone(), prompt.clone(), prompt]), [0, 1, 2]);
    }

    #[test]
    fn prompts_of_unknown_tokens_are_sessions_of_their_own() {
        let unknown = TraceRequest::new(1, None, TraceTokens::Length(99), TraceTokens::Length(1));
        assert_eq!(sessions(&[unknown.clone(), unknown, request(None, &[(0, 3)])]), [0, 1, 2]);
    }
}
