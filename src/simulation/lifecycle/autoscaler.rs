//! How many replicas there should be: the Kubernetes HorizontalPodAutoscaler's rules
//! (`pkg/controller/podautoscaler`: `replica_calculator.go` for a metric per pod, `horizontal.go` for
//! stabilisation and the limits of a policy).

use serde::{Deserialize, Serialize};

use crate::units::SimTime;
use crate::workload::ConfigError;

/// An autoscaler, as it is typed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoscalerConfig {
    /// 1 or more.
    pub min_replicas: u32,
    /// Also the number of GPUs' worth of replicas there are: one that drains still has its own.
    pub max_replicas: u32,
    pub metric: ScalingMetric,
    /// Of the metric's mean over the replicas; above 0.
    pub target: f64,
    /// Between two looks at the metric, above 0.
    #[serde(default = "fifteen")]
    pub interval_s: f64,
    /// No change while the metric is so near to its target, as a share of it.
    #[serde(default = "a_tenth")]
    pub tolerance: f64,
    /// From the decision to the first request that a new replica can take.
    #[serde(default)]
    pub start_up_s: f64,
    #[serde(default = "ScalingRules::up")]
    pub scale_up: ScalingRules,
    #[serde(default = "ScalingRules::down")]
    pub scale_down: ScalingRules,
}

const fn fifteen() -> f64 {
    15.0
}

const fn a_tenth() -> f64 {
    0.1
}

/// What the autoscaler looks at; the mean over the replicas that are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalingMetric {
    /// Requests sent to a replica that have not ended, and those that wait at the router.
    RequestsInFlight,
    /// Requests that wait in a replica's engine (`vllm:num_requests_waiting`), and those at the router.
    Waiting,
    /// `vllm:kv_cache_usage_perc`, 0 to 1.
    KvUsage,
}

/// How fast it goes up or down; defaults are those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalingRules {
    /// The most cautious of the answers of so long a time counts.
    #[serde(default)]
    pub stabilization_window_s: f64,
    /// The most change in a period: the larger of a number of replicas and a share of them.
    #[serde(default = "four")]
    pub pods: u32,
    #[serde(default = "hundred")]
    pub percent: u32,
    #[serde(default = "fifteen")]
    pub period_s: f64,
}

const fn four() -> u32 {
    4
}

const fn hundred() -> u32 {
    100
}

impl ScalingRules {
    const fn up() -> Self {
        Self { stabilization_window_s: 0.0, pods: 4, percent: 100, period_s: 15.0 }
    }

    const fn down() -> Self {
        Self { stabilization_window_s: 300.0, ..Self::up() }
    }
}

/// The most seconds of an interval or a window.
const MAX_S: f64 = 1e6;

impl AutoscalerConfig {
    /// # Errors
    /// The first field that cannot be, by its path below the autoscaler.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = |field: &str, value: f64, is_right: bool, expected: &str| {
            if is_right { Ok(()) } else { Err(ConfigError::new(field, value, expected)) }
        };
        let within = |field: &str, value: f64, least: f64, most: f64| {
            check(field, value, (least..=most).contains(&value), &format!("a number from {least} to {most}"))
        };
        within("min_replicas", f64::from(self.min_replicas), 1.0, f64::from(self.max_replicas))?;
        within("target", self.target, 1e-6, 1e9)?;
        within("interval_s", self.interval_s, 1e-3, MAX_S)?;
        within("tolerance", self.tolerance, 0.0, 1.0)?;
        within("start_up_s", self.start_up_s, 0.0, MAX_S)?;
        for (name, rules) in [("scale_up", &self.scale_up), ("scale_down", &self.scale_down)] {
            within(&format!("{name}.stabilization_window_s"), rules.stabilization_window_s, 0.0, MAX_S)?;
            within(&format!("{name}.period_s"), rules.period_s, 1e-3, MAX_S)?;
        }
        Ok(())
    }
}

/// What an autoscaler sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    pub num_ready: usize,
    pub num_starting: usize,
    /// Of the metric, over the ready replicas.
    pub sum: f64,
}

/// Decides how many replicas there should be.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    config: AutoscalerConfig,
    /// How many there should be, as of the last decision.
    desired: usize,
    /// Answers before stabilisation, with their times.
    recommendations: Vec<(SimTime, usize)>,
    /// Changes, with their times.
    ups: Vec<(SimTime, usize)>,
    downs: Vec<(SimTime, usize)>,
}

impl Autoscaler {
    /// `num_replicas` are there at first.
    pub fn new(config: AutoscalerConfig, num_replicas: usize) -> Self {
        Self {
            config,
            desired: num_replicas,
            recommendations: Vec::new(),
            ups: Vec::new(),
            downs: Vec::new(),
        }
    }

    pub(super) fn metric(&self) -> ScalingMetric {
        self.config.metric
    }

    pub(super) fn desired(&self) -> usize {
        self.desired
    }

    pub(super) fn interval(&self) -> SimTime {
        SimTime::from_secs_f64(self.config.interval_s)
    }

    pub(super) fn start_up(&self) -> SimTime {
        SimTime::from_secs_f64(self.config.start_up_s)
    }

    /// Looks at the metric and decides.
    pub(super) fn decide(&mut self, now: SimTime, reading: Reading) {
        let current = self.desired;
        let Some(recommended) = self.recommend(reading) else { return };
        let bounded = recommended.clamp(self.config.min_replicas as usize, self.config.max_replicas as usize);
        let stable = self.stabilize(now, bounded);
        self.desired = if stable > current {
            stable.min(self.limit_up(now)).max(current)
        } else {
            stable.max(self.limit_down(now)).min(current)
        };
        if self.desired > current {
            self.ups.push((now, self.desired - current));
        } else if self.desired < current {
            self.downs.push((now, current - self.desired));
        }
    }

    /// `calcPlainMetricReplicas`. Replicas that start up count as idle when there are too few, and not
    /// at all when there are too many. `None` without anybody who could be asked.
    fn recommend(&self, reading: Reading) -> Option<usize> {
        let Reading { num_ready, num_starting, sum } = reading;
        if num_ready == 0 {
            return None;
        }
        let is_near = |ratio: f64| (ratio - 1.0).abs() <= self.config.tolerance;
        let ratio = sum / (num_ready as f64 * self.config.target);
        if num_starting == 0 || ratio <= 1.0 {
            return Some(if is_near(ratio) {
                self.desired
            } else {
                (ratio * num_ready as f64).ceil() as usize
            });
        }
        let num_counted = (num_ready + num_starting) as f64;
        let ratio = sum / (num_counted * self.config.target);
        let replicas = (ratio * num_counted).ceil() as usize;
        Some(if is_near(ratio) || ratio < 1.0 || replicas < self.desired { self.desired } else { replicas })
    }

    /// `stabilizeRecommendationWithBehaviors`: up to the least, down to the most of what was
    /// recommended within the window.
    fn stabilize(&mut self, now: SimTime, recommended: usize) -> usize {
        let window = |rules: &ScalingRules| SimTime::from_secs_f64(rules.stabilization_window_s);
        let (up_window, down_window) = (window(&self.config.scale_up), window(&self.config.scale_down));
        let is_within = |at: SimTime, window: SimTime| at + window > now;
        self.recommendations.retain(|&(at, _)| is_within(at, up_window.max(down_window)));
        let of = |window: SimTime| {
            let earlier = self.recommendations.iter().filter(move |&&(at, _)| is_within(at, window));
            earlier.map(|&(_, replicas)| replicas)
        };
        let least = of(up_window).min().map_or(recommended, |least| least.min(recommended));
        let most = of(down_window).max().map_or(recommended, |most| most.max(recommended));
        self.recommendations.push((now, recommended));
        self.desired.max(least).min(most)
    }

    /// Replicas at the beginning of the period that ends now.
    fn at_period_start(&self, now: SimTime, period_s: f64) -> usize {
        let period = SimTime::from_secs_f64(period_s);
        let sum = |events: &[(SimTime, usize)]| -> usize {
            events.iter().filter(|&&(at, _)| at + period > now).map(|&(_, change)| change).sum()
        };
        (self.desired + sum(&self.downs)).saturating_sub(sum(&self.ups))
    }

    /// `calculateScaleUpLimitWithScalingRules`.
    fn limit_up(&self, now: SimTime) -> usize {
        let rules = self.config.scale_up;
        let start = self.at_period_start(now, rules.period_s);
        let by_percent = (start as f64 * (1.0 + f64::from(rules.percent) / 100.0)).ceil() as usize;
        by_percent.max(start + rules.pods as usize)
    }

    /// `calculateScaleDownLimitWithBehaviors`.
    fn limit_down(&self, now: SimTime) -> usize {
        let rules = self.config.scale_down;
        let start = self.at_period_start(now, rules.period_s);
        let by_percent = (start as f64 * (1.0 - f64::from(rules.percent.min(100)) / 100.0)) as usize;
        by_percent.min(start.saturating_sub(rules.pods as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AutoscalerConfig {
        AutoscalerConfig {
            min_replicas: 1,
            max_replicas: 20,
            metric: ScalingMetric::RequestsInFlight,
            target: 10.0,
            interval_s: 15.0,
            tolerance: 0.1,
            start_up_s: 0.0,
            scale_up: ScalingRules::up(),
            scale_down: ScalingRules::down(),
        }
    }

    /// The desired numbers after looks every 15 s at sums over as many ready replicas as desired.
    fn desired(config: AutoscalerConfig, replicas: usize, sums: &[f64]) -> Vec<usize> {
        let mut autoscaler = Autoscaler::new(config, replicas);
        let look = |(at, &sum): (usize, &f64)| {
            let reading = Reading { num_ready: autoscaler.desired(), num_starting: 0, sum };
            autoscaler.decide(SimTime::from_secs_f64(15.0 * (at + 1) as f64), reading);
            autoscaler.desired()
        };
        sums.iter().enumerate().map(look).collect()
    }

    #[test]
    fn replicas_are_as_many_as_bring_the_mean_to_the_target() {
        // 43 over four are near enough to 10 each; 44.4 take five.
        assert_eq!(desired(config(), 4, &[40.0, 43.0, 44.4]), [4, 4, 5]);
        // Nine at once; and no more than are allowed: in 15 s at most 4 more or twice as many.
        assert_eq!(desired(config(), 1, &[90.0, 90.0, 900.0]), [5, 9, 18]);
        assert_eq!(desired(config(), 15, &[900.0]), [20]);
    }

    #[test]
    fn down_goes_to_the_most_that_was_asked_for_within_the_window() {
        // A window of 45 s holds the looks at 15 and 30 s at that at 45 s, that at 0 no more.
        let mut config = config();
        config.scale_down.stabilization_window_s = 45.0;
        assert_eq!(desired(config.clone(), 8, &[80.0, 50.0, 30.0, 10.0, 10.0]), [8, 8, 8, 5, 3]);
        // Without one it goes at once, to the least there may be.
        config.scale_down.stabilization_window_s = 0.0;
        config.min_replicas = 2;
        assert_eq!(desired(config, 8, &[50.0, 0.0]), [5, 2]);
    }

    #[test]
    fn up_goes_to_the_least_that_was_asked_for_within_the_window() {
        let mut config = config();
        config.scale_up.stabilization_window_s = 31.0;
        // The look at 15 s asked for what there was, until it is out of the window.
        assert_eq!(desired(config, 2, &[20.0, 60.0, 60.0, 50.0]), [2, 2, 2, 5]);
    }

    #[test]
    fn the_limits_of_a_period_count_what_has_changed_in_it() {
        let mut config = config();
        config.scale_up = ScalingRules { pods: 2, percent: 0, period_s: 60.0, ..ScalingRules::up() };
        config.scale_down = ScalingRules { pods: 1, percent: 0, period_s: 30.0, ..ScalingRules::up() };
        // Two at once, then none until those are a minute old. Down to one less than there were half
        // a minute ago: 4, then 6, then 3.
        assert_eq!(
            desired(config, 2, &[90.0, 90.0, 90.0, 90.0, 90.0, 0.0, 0.0, 0.0]),
            [4, 4, 4, 4, 6, 3, 3, 2]
        );
    }

    #[test]
    fn replicas_that_start_up_count_as_idle_when_there_are_too_few() {
        let mut autoscaler = Autoscaler::new(config(), 4);
        let at = SimTime::from_secs_f64(15.0);
        // 40 over two ready are 20 each, over all four what is asked for.
        autoscaler.decide(at, Reading { num_ready: 2, num_starting: 2, sum: 40.0 });
        assert_eq!(autoscaler.desired(), 4);
        autoscaler.decide(at, Reading { num_ready: 2, num_starting: 2, sum: 60.0 });
        assert_eq!(autoscaler.desired(), 6);
        // Nobody can be asked.
        autoscaler.decide(at, Reading { num_ready: 0, num_starting: 6, sum: 0.0 });
        assert_eq!(autoscaler.desired(), 6);
    }
}
