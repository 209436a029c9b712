//! What each tenant got, and how fairly.

use serde::Serialize;

use super::percentiles::LatencyMs;
use super::requests_csv::tpot_ns;
use crate::simulation::RequestRecord;

/// Two tenants or more.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fairness {
    /// Jain's index over the tenants' tokens per second of service (see [`TenantSummary`]): 1 when all
    /// requests of all tenants are served equally fast, 1 over the number of tenants when one has it all.
    /// A tenant of whom nothing finished counts with 0.
    pub jain_index: f64,
    /// Which tenant's requests took the longest for a token, and how many times as long as those of all.
    pub worst_tenant: String,
    pub worst_slowdown: f64,
    pub tenants: Vec<TenantSummary>,
}

/// Of the requests of a tenant that finished, but for the count of the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantSummary {
    pub name: String,
    pub finished_requests: u64,
    /// Aborted or failed.
    pub unfinished_requests: u64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// Of the prompt and output tokens of all tenants.
    pub share_of_tokens: f64,
    pub output_tokens_per_s: f64,
    /// Prompt and output tokens over the seconds from the arrivals of its requests to their ends, added
    /// up: how fast it is served, whatever it asks for.
    pub service_tokens_per_s: f64,
    /// The same over all tenants, over that of this one: above 1 it waits longer for a token than others.
    pub slowdown: f64,
    pub ttft: LatencyMs,
    pub tpot: LatencyMs,
    pub e2e: LatencyMs,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    finished_requests: u64,
    unfinished_requests: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    ttft_ns: Vec<u64>,
    tpot_ns: Vec<u64>,
    e2e_ns: Vec<u64>,
}

impl Tally {
    fn tokens(&self) -> u64 {
        self.prompt_tokens + self.output_tokens
    }

    fn service_s(&self) -> f64 {
        self.e2e_ns.iter().map(|&ns| u128::from(ns)).sum::<u128>() as f64 / 1e9
    }
}

/// Empty with fewer than two tenants.
#[derive(Debug, Default)]
pub(super) struct TenantTally(Vec<Tally>);

impl TenantTally {
    pub fn new(num_tenants: usize) -> Self {
        Self(if num_tenants < 2 { Vec::new() } else { vec![Tally::default(); num_tenants] })
    }

    pub fn on_request(&mut self, request: &RequestRecord) {
        let Some(tally) = self.0.get_mut(request.tenant as usize) else { return };
        if !request.is_whole() {
            tally.unfinished_requests += 1;
            return;
        }
        tally.finished_requests += 1;
        tally.prompt_tokens += u64::from(request.num_prompt_tokens);
        tally.output_tokens += u64::from(request.num_output_tokens);
        tally.ttft_ns.extend(request.first_token.map(|at| at.since(request.arrival).as_ns()));
        tally.tpot_ns.extend(tpot_ns(request));
        tally.e2e_ns.push(request.finished.since(request.arrival).as_ns());
    }

    /// `None` with fewer than two tenants.
    pub fn summary(&mut self, names: &[String], duration_s: f64) -> Option<Fairness> {
        if self.0.is_empty() {
            return None;
        }
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let all_tokens = self.0.iter().map(Tally::tokens).sum::<u64>() as f64;
        let all_service_s: f64 = self.0.iter().map(Tally::service_s).sum();
        let speed_of_all = ratio(all_tokens, all_service_s);
        let summary = |(name, tally): (&String, &mut Tally)| {
            let speed = ratio(tally.tokens() as f64, tally.service_s());
            TenantSummary {
                name: name.clone(),
                finished_requests: tally.finished_requests,
                unfinished_requests: tally.unfinished_requests,
                prompt_tokens: tally.prompt_tokens,
                output_tokens: tally.output_tokens,
                share_of_tokens: ratio(tally.tokens() as f64, all_tokens),
                output_tokens_per_s: ratio(tally.output_tokens as f64, duration_s),
                service_tokens_per_s: speed,
                slowdown: ratio(speed_of_all, speed),
                ttft: LatencyMs::of_ns(&mut tally.ttft_ns),
                tpot: LatencyMs::of_ns(&mut tally.tpot_ns),
                e2e: LatencyMs::of_ns(&mut tally.e2e_ns),
            }
        };
        let tenants: Vec<TenantSummary> = names.iter().zip(&mut self.0).map(summary).collect();
        let served = tenants.iter().filter(|tenant| tenant.finished_requests > 0);
        let asking = tenants.iter().filter(|t| t.finished_requests + t.unfinished_requests > 0);
        let worst = served.max_by(|a, b| a.slowdown.total_cmp(&b.slowdown));
        Some(Fairness {
            jain_index: jain_index(asking.map(|tenant| tenant.service_tokens_per_s)),
            worst_tenant: worst.map(|tenant| tenant.name.clone()).unwrap_or_default(),
            worst_slowdown: worst.map_or(0.0, |tenant| tenant.slowdown),
            tenants,
        })
    }
}

/// The square of the sum over the sum of squares and the count (Jain, Chiu and Hawe, 1984); 0 of nothing.
fn jain_index(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        count += 1.0;
        sum += value;
        squares += value * value;
    }
    if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::FinishReason;
    use crate::units::SimTime;

    fn request(tenant: u32, e2e_s: u64, prompt: u32, output: u32) -> RequestRecord {
        let second = |s: u64| SimTime::from_ms(s * 1_000);
        RequestRecord {
            index: 0,
            replica: 0,
            tenant,
            session: None,
            turn: 0,
            arrival: second(10),
            first_scheduled: Some(second(10)),
            first_token: Some(second(11)),
            finished: second(10 + e2e_s),
            num_prompt_tokens: prompt,
            num_output_tokens: output,
            was_admitted: true,
            num_local_cached_tokens: 0,
            num_external_cached_tokens: 0,
            num_preemptions: 0,
            finish_reason: if e2e_s == 0 { FinishReason::Abort } else { FinishReason::Length },
            skip_reading_prefix_cache: false,
            is_long_enough_to_hit: false,
            shares_shortest_hit: false,
        }
    }

    #[test]
    fn service_is_tokens_over_the_time_that_they_took() {
        let mut tally = TenantTally::new(3);
        // 30 tokens a second, 10, and nobody served.
        for request in [request(0, 2, 50, 10), request(0, 4, 100, 20), request(1, 10, 99, 1)] {
            tally.on_request(&request);
        }
        tally.on_request(&request(2, 0, 99, 1));
        let names = ["a", "b", "c"].map(str::to_owned);
        let fairness = tally.summary(&names, 20.0).unwrap();
        let [a, b, c] = &fairness.tenants[..] else { panic!("{fairness:?}") };
        assert_eq!((a.service_tokens_per_s, b.service_tokens_per_s), (30.0, 10.0));
        assert_eq!((a.finished_requests, c.finished_requests, c.unfinished_requests), (2, 0, 1));
        assert_eq!((a.output_tokens_per_s, a.e2e.mean_ms, a.tpot.count), (1.5, 3_000.0, 2));
        assert_eq!((a.share_of_tokens, b.share_of_tokens), (180.0 / 280.0, 100.0 / 280.0));
        // 280 tokens in 16 s are 17.5 a second.
        assert_eq!((b.slowdown, a.slowdown), (1.75, 17.5 / 30.0));
        assert_eq!((fairness.worst_tenant.as_str(), fairness.worst_slowdown), ("b", 1.75));
        // 40 squared over three times 900 and 100: who asked and got nothing counts.
        assert_eq!(fairness.jain_index, 1_600.0 / 3_000.0);
        assert_eq!(TenantTally::new(1).summary(&names[..1], 20.0), None);
    }
}
