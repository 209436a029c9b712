//! Writes kvsim's own format; [`super::kvsim`] describes it.

use std::io::{self, Write};

use super::kvsim::{KvsimHeader, VERSION};
use super::{TraceRequest, TraceTokens};
use crate::prompt::{PromptEmbeds, PromptExtras, TokenRuns};
use crate::units::SimTime;
use crate::workload::WaitsFor;

/// Writes requests one after the other; what is read back is equal, line numbers aside.
pub struct KvsimWriter<W> {
    out: W,
    tenants: Vec<String>,
    row: String,
}

impl<W: Write> KvsimWriter<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// As `out`.
    pub fn new(mut out: W, header: &KvsimHeader) -> io::Result<Self> {
        let mut row = format!("{{\"kvsim_trace\": {VERSION}");
        for (name, texts) in [("tenants", &header.tenants), ("notes", &header.notes)] {
            if !texts.is_empty() {
                field(&mut row, name);
                list(&mut row, texts, |row, item| text(row, item));
            }
        }
        if let Some(hash_id_tokens) = header.hash_id_tokens {
            field(&mut row, "hash_id_tokens");
            number(&mut row, hash_id_tokens);
        }
        row.push_str("}\n");
        out.write_all(row.as_bytes())?;
        Ok(Self { out, tenants: header.tenants.clone(), row })
    }

    /// Writes a request.
    ///
    /// # Errors
    /// As `out`; a tenant that the header does not name is invalid input.
    pub fn write(&mut self, request: &TraceRequest) -> io::Result<()> {
        let tenant = self.tenants.get(request.tenant as usize);
        if tenant.is_none() && request.tenant > 0 {
            let message = format!("tenant {} is none of the header's {}", request.tenant, self.tenants.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.row.clear();
        write_request(&mut self.row, request, tenant.map(String::as_str));
        self.out.write_all(self.row.as_bytes())
    }

    /// Hands on what `out` keeps.
    ///
    /// # Errors
    /// As `out`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// What was written to, flushed.
    ///
    /// # Errors
    /// As `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }
}

fn write_request(row: &mut String, request: &TraceRequest, tenant: Option<&str>) {
    row.push('{');
    for (name, time) in [("at_s", request.at), ("think_time_s", request.think_time)] {
        if let Some(time) = time {
            field(row, name);
            seconds(row, time);
        }
    }
    for (names, part) in
        [(["prompt", "prompt_tokens"], &request.prompt), (["output", "output_tokens"], &request.output)]
    {
        match part {
            TraceTokens::Known(known) => {
                field(row, names[0]);
                tokens(row, known);
            }
            TraceTokens::Length(length) => {
                field(row, names[1]);
                number(row, *length);
            }
        }
    }
    if let Some(session) = request.session {
        field(row, "session");
        number(row, session);
    }
    if request.turn > 0 {
        field(row, "turn");
        number(row, request.turn);
    }
    if let Some(tenant) = tenant {
        field(row, "tenant");
        text(row, tenant);
    }
    if request.priority != 0 {
        field(row, "priority");
        number(row, request.priority);
    }
    if request.skip_reading_prefix_cache {
        field(row, "skip_reading_prefix_cache");
        row.push_str("true");
    }
    write_extras(row, &request.extras);
    if let Some(patience) = request.patience {
        field(row, "patience");
        row.push_str("{\"lasts_s\": ");
        seconds(row, patience.lasts);
        row.push_str(match patience.waits_for {
            WaitsFor::FirstToken => ", \"waits_for\": \"first_token\"}",
            WaitsFor::LastToken => ", \"waits_for\": \"last_token\"}",
        });
    }
    row.push_str("}\n");
}

fn write_extras(row: &mut String, extras: &PromptExtras) {
    if let Some(salt) = &extras.cache_salt {
        field(row, "cache_salt");
        text(row, salt);
    }
    if let Some(lora) = &extras.lora {
        field(row, "lora");
        row.push_str("{\"name\": ");
        text(row, &lora.name);
        row.push_str(", \"id\": ");
        number(row, lora.id);
        row.push_str(", \"path\": ");
        text(row, &lora.path);
        row.push('}');
    }
    if !extras.mm.is_empty() {
        field(row, "mm");
        list(row, &extras.mm, |row, item| {
            row.push_str("{\"identifier\": ");
            text(row, &item.identifier);
            row.push_str(", \"offset_tokens\": ");
            number(row, item.offset_tokens);
            row.push_str(", \"length_tokens\": ");
            number(row, item.length_tokens);
            row.push('}');
        });
    }
    if let Some(embeds) = &extras.prompt_embeds {
        field(row, "prompt_embeds");
        match embeds {
            PromptEmbeds::Counting { num_tokens, dim, start } => {
                row.push_str("{\"num_tokens\": ");
                number(row, *num_tokens);
                row.push_str(", \"dim\": ");
                number(row, *dim);
                row.push_str(", \"start\": ");
                number(row, *start);
            }
            PromptEmbeds::OfTokens(known) => {
                row.push_str("{\"tokens\": ");
                tokens(row, known);
            }
        }
        row.push('}');
    }
}

/// Begins a field behind the ones before it.
fn field(row: &mut String, name: &str) {
    if !row.ends_with('{') {
        row.push_str(", ");
    }
    row.push('"');
    row.push_str(name);
    row.push_str("\": ");
}

fn list<T>(row: &mut String, items: &[T], mut item: impl FnMut(&mut String, &T)) {
    row.push('[');
    for (index, value) in items.iter().enumerate() {
        if index > 0 {
            row.push_str(", ");
        }
        item(row, value);
    }
    row.push(']');
}

fn tokens(row: &mut String, tokens: &TokenRuns) {
    list(row, tokens.runs(), |row, run| {
        if run.len == 1 {
            return number(row, run.start);
        }
        row.push('[');
        number(row, run.start);
        row.push_str(", ");
        number(row, run.len);
        row.push(']');
    });
}

fn number(row: &mut String, value: impl itoa::Integer) {
    row.push_str(itoa::Buffer::new().format(value));
}

/// Exact, without zeros at the end.
fn seconds(row: &mut String, time: SimTime) {
    let (whole, mut fraction) = (time.as_ns() / 1_000_000_000, time.as_ns() % 1_000_000_000);
    number(row, whole);
    if fraction > 0 {
        let mut digits = 9;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            digits -= 1;
        }
        row.push_str(&format!(".{fraction:0digits$}"));
    }
}

fn text(row: &mut String, value: &str) {
    // A text always is JSON.
    row.push_str(&serde_json::to_string(value).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::prompt::{LoraRequest, MmItem};
    use crate::workload::Patience;
    use crate::workload::trace::{FIRST_UNKNOWN_TOKEN, ReadOptions, TraceFormat, TraceInput, open};

    fn write(header: &KvsimHeader, requests: &[TraceRequest]) -> String {
        let mut writer = KvsimWriter::new(Vec::new(), header).unwrap();
        for request in requests {
            writer.write(request).unwrap();
        }
        String::from_utf8(writer.finish().unwrap()).unwrap()
    }

    fn full() -> TraceRequest {
        let mut prompt = TokenRuns::from_run(0, 512);
        prompt.push(7);
        TraceRequest {
            think_time: Some(SimTime(1_500_000_000)),
            extras: PromptExtras {
                lora: Some(LoraRequest { name: "l\"é".into(), id: 3, path: "/l".into() }),
                mm: vec![MmItem { identifier: "cat".into(), offset_tokens: 4, length_tokens: 9 }],
                cache_salt: Some("salt".into()),
                prompt_embeds: Some(PromptEmbeds::Counting { num_tokens: 513, dim: 8, start: -5 }),
            },
            priority: -2,
            skip_reading_prefix_cache: true,
            patience: Some(Patience { lasts: SimTime(250), waits_for: WaitsFor::LastToken }),
            tenant: 1,
            session: Some(u64::MAX),
            turn: 4,
            ..TraceRequest::new(
                2,
                Some(SimTime(2_000_000_001)),
                TraceTokens::Known(prompt),
                TraceTokens::Known(TokenRuns::from_run(FIRST_UNKNOWN_TOKEN - 3, 3)),
            )
        }
    }

    #[test]
    fn everything_that_can_be_said_is_written() {
        let header = KvsimHeader {
            tenants: vec!["a".into(), "b".into()],
            notes: vec!["n".into()],
            hash_id_tokens: Some(64),
        };
        let plain = TraceRequest::new(3, None, TraceTokens::Length(9), TraceTokens::Length(1));
        assert_eq!(
            write(&header, &[full(), plain]),
            concat!(
                r#"{"kvsim_trace": 1, "tenants": ["a", "b"], "notes": ["n"], "hash_id_tokens": 64}"#,
                "\n",
                r#"{"at_s": 2.000000001, "think_time_s": 1.5, "prompt": [[0, 512], 7], "#,
                r#""output": [[9223372036854775805, 3]], "session": 18446744073709551615, "turn": 4, "#,
                r#""tenant": "b", "priority": -2, "skip_reading_prefix_cache": true, "cache_salt": "salt", "#,
                r#""lora": {"name": "l\"é", "id": 3, "path": "/l"}, "#,
                r#""mm": [{"identifier": "cat", "offset_tokens": 4, "length_tokens": 9}], "#,
                r#""prompt_embeds": {"num_tokens": 513, "dim": 8, "start": -5}, "#,
                r#""patience": {"lasts_s": 0.00000025, "waits_for": "last_token"}}"#,
                "\n",
                r#"{"prompt_tokens": 9, "output_tokens": 1, "tenant": "a"}"#,
                "\n",
            )
        );
    }

    #[test]
    fn embeddings_of_tokens_are_written_as_tokens() {
        let embeds = PromptEmbeds::OfTokens(TokenRuns::from_run(40, 9));
        let extras = PromptExtras { prompt_embeds: Some(embeds), ..PromptExtras::default() };
        let length = |tokens| TraceTokens::Length(tokens);
        let request = TraceRequest { extras, ..TraceRequest::new(2, None, length(9), length(1)) };
        let text = write(&KvsimHeader::default(), std::slice::from_ref(&request));
        assert!(text.ends_with(concat!(
            r#"{"prompt_tokens": 9, "output_tokens": 1, "prompt_embeds": {"tokens": [[40, 9]]}}"#,
            "\n"
        )));
        let input = TraceInput::new(Cursor::new(text.into_bytes())).unwrap();
        let (_, mut reader) = open(input, &ReadOptions::default()).unwrap();
        assert_eq!(reader.next_request().unwrap(), Some(request));
    }

    #[test]
    fn a_tenant_without_a_name_is_refused() {
        let mut writer = KvsimWriter::new(Vec::new(), &KvsimHeader::default()).unwrap();
        assert!(writer.write(&full()).is_err());
    }

    fn arbitrary_tokens() -> impl Strategy<Value = TraceTokens> {
        let runs = prop::collection::vec((0_u64..FIRST_UNKNOWN_TOKEN - 9, 1_u32..9), 1..6);
        prop_oneof![
            (1_u32..1000).prop_map(TraceTokens::Length),
            runs.prop_map(|runs| {
                let mut tokens = TokenRuns::new();
                runs.into_iter().for_each(|(start, len)| tokens.push_run(start, len));
                TraceTokens::Known(tokens)
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            requests in prop::collection::vec(
                (
                    (arbitrary_tokens(), arbitrary_tokens(), prop::option::of(any::<u64>())),
                    (prop::option::of(any::<u64>()), any::<i32>(), any::<bool>(), any::<bool>()),
                    (prop::option::of(any::<u64>()), any::<u32>(), 0_u32..2, prop::option::of(".*")),
                ),
                0..5,
            ),
            notes in prop::collection::vec(".*", 0..3),
        ) {
            let header = KvsimHeader { tenants: vec!["a".into(), "b".into()], notes, hash_id_tokens: None };
            let requests: Vec<TraceRequest> = requests
                .into_iter()
                .enumerate()
                .map(|(index, ((prompt, output, at), (think, priority, skip, waits), (session, turn, tenant, salt)))| {
                    let waits_for = if waits { WaitsFor::FirstToken } else { WaitsFor::LastToken };
                    TraceRequest {
                        think_time: think.map(SimTime),
                        priority,
                        skip_reading_prefix_cache: skip,
                        patience: think.map(|think| Patience { lasts: SimTime(think / 3), waits_for }),
                        session,
                        turn,
                        tenant,
                        extras: PromptExtras { cache_salt: salt, ..PromptExtras::default() },
                        ..TraceRequest::new(index as u64 + 2, at.map(SimTime), prompt, output)
                    }
                })
                .collect();
            let mut requests: Vec<TraceRequest> = requests;
            // In a file times do not decrease.
            let mut times: Vec<SimTime> = requests.iter().filter_map(|request| request.at).collect();
            times.sort_unstable();
            let mut times = times.into_iter();
            for request in requests.iter_mut().filter(|request| request.at.is_some()) {
                request.at = times.next();
            }
            let text = write(&header, &requests);
            let input = TraceInput::new(Cursor::new(text.into_bytes())).unwrap();
            let (format, mut reader) = open(input, &ReadOptions::default()).unwrap();
            prop_assert_eq!(format, TraceFormat::Kvsim);
            prop_assert_eq!(reader.tenants(), &header.tenants[..]);
            prop_assert_eq!(reader.notes(), header.notes);
            for request in requests {
                prop_assert_eq!(reader.next_request().unwrap(), Some(request));
            }
            prop_assert_eq!(reader.next_request().unwrap(), None);
        }
    }
}
