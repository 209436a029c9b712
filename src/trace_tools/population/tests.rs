use std::collections::BTreeSet;

use super::*;
use crate::workload::trace::{ReadOptions, TraceInput, open};

/// Two users with a system prompt in common, of two turns each, and one who is alone.
const TRACE: &str = r#"{"kvsim_trace": 1}
{"at_s": 0, "prompt": [[0, 64], [1000, 20]], "output": [[1020, 12]], "session": 7}
{"at_s": 10, "prompt": [[0, 64], [2000, 20]], "output_tokens": 5, "session": 8}
{"at_s": 20, "prompt": [[0, 64], [1000, 52]], "output_tokens": 5, "session": 7, "turn": 1}
{"at_s": 50, "prompt": [[0, 64], [2000, 40]], "output_tokens": 5, "session": 8, "turn": 1}
{"at_s": 90, "prompt": [[5000, 40]], "output_tokens": 5, "session": 9}
"#;

fn population(trace: &'static str) -> Population {
    let input = TraceInput::new(trace.as_bytes()).unwrap();
    let (_, mut reader) = open(input, &ReadOptions::default()).unwrap();
    Population::read(reader.as_mut()).unwrap()
}

fn runs(tokens: &TraceTokens) -> Vec<(u64, u32)> {
    let TraceTokens::Known(tokens) = tokens else { panic!("{tokens:?}") };
    tokens.runs().iter().map(|run| (run.start, run.len)).collect()
}

#[test]
fn one_is_the_trace_itself() {
    let population = population(TRACE);
    assert_eq!(population.num_sessions(), 3);
    assert_eq!(population.multiply(1.0, 1).unwrap(), population.requests);
    // 4 requests begin with the 64 shared tokens.
    assert_eq!(population.shared_prompt_tokens(), (256, 84 + 84 + 116 + 104 + 40));
}

#[test]
fn copies_have_tokens_of_their_own_behind_what_is_shared() {
    let population = population(TRACE);
    let rows = population.multiply(3.0, 1).unwrap();
    assert_eq!(rows.len(), 15);
    assert!(rows.is_sorted_by_key(|row| row.at));
    assert!(rows.iter().all(|row| row.at <= Some(SimTime::from_ms(90_000))));
    let sessions: BTreeSet<u64> = rows.iter().filter_map(|row| row.session).collect();
    assert_eq!(sessions.len(), 9);
    let mut seen = BTreeSet::new();
    for session in sessions {
        let turns: Vec<_> = rows.iter().filter(|row| row.session == Some(session)).collect();
        let first = runs(&turns[0].prompt);
        if turns.len() == 1 {
            assert_eq!((first.len(), first[0].1), (1, 40));
            assert!(seen.insert(first[0].0));
            continue;
        }
        // The second prompt goes on from the first, and from its answer.
        let (second, own) = (runs(&turns[1].prompt), first[1].0);
        assert_eq!((first[0], second[0], second[1].0), ((0, 64), (0, 64), own));
        let is_first_user = second[1].1 == 52;
        if is_first_user {
            assert_eq!(runs(&turns[0].output), [(own + 20, 12)]);
        }
        assert_eq!(
            turns[1].at.unwrap().since(turns[0].at.unwrap()),
            SimTime::from_ms(if is_first_user { 20_000 } else { 40_000 })
        );
        assert!(seen.insert(own));
    }
    // Renamed ids begin behind the largest.
    assert_eq!(seen.iter().filter(|&&start| start >= 5040).count(), 6);
}

#[test]
fn less_than_one_leaves_whole_sessions_out() {
    let population = population(TRACE);
    for (factor, sessions) in [(0.0, 0), (0.4, 1), (0.67, 2), (1.34, 4)] {
        let rows = population.multiply(factor, 1).unwrap();
        let ids: BTreeSet<_> = rows.iter().map(|row| row.session).collect();
        assert_eq!(ids.len(), sessions, "{factor}");
        assert!(rows.iter().filter(|row| row.session == Some(7)).count() != 1);
    }
}

#[test]
fn ids_that_would_not_fit_are_refused() {
    let population = population(
        "{\"kvsim_trace\": 1}\n{\"at_s\": 0, \"prompt\": [[9223372036854775000, 200]], \"output_tokens\": 1}\n",
    );
    assert!(population.multiply(2.0, 1).is_ok());
    assert!(matches!(population.multiply(9.0, 1), Err(TraceError::Unfit(_))));
}

#[test]
fn hash_ids_stay_whole() {
    let trace = "{\"timestamp\": 0, \"input_length\": 700, \"output_length\": 1, \"hash_ids\": [0, 1]}\n\
                 {\"timestamp\": 5, \"input_length\": 1030, \"output_length\": 1, \"hash_ids\": [0, 2, 3]}\n\
                 {\"timestamp\": 9, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [4]}\n\
                 {\"timestamp\": 9, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [4]}\n";
    let population = population(trace);
    // The second goes on from the first; of the last two each is a session.
    assert_eq!(population.num_sessions(), 3);
    let rows = population.multiply(2.0, 1).unwrap();
    let shared = rows.iter().filter(|row| runs(&row.prompt) == [(4 * 512, 512)]).count();
    assert_eq!(shared, 4);
    for row in &rows {
        assert!(runs(&row.prompt).iter().all(|(start, _)| start % 512 == 0), "{row:?}");
    }
}
