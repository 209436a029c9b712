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
    #[serde(default)]
    pub scale_up: ScalingRules,
    #[serde(default)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScalingRules {
    /// The most cautious of the answers of so long a time counts. 0 up and 300 down if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stabilization_window_s: Option<f64>,
    /// The most change in a period: a number of replicas, and a share of them in percent. Both left out, 100
    /// percent, and up also 4 replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// 15 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_s: Option<f64>,
    /// Which of the two limits counts.
    #[serde(skip_serializing_if = "is_max")]
    pub select_policy: SelectPolicy,
    /// Instead of the autoscaler's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
}

/// Which limit of several counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectPolicy {
    /// That which lets most change.
    #[default]
    Max,
    Min,
    /// No change at all.
    Disabled,
}

fn is_max(policy: &SelectPolicy) -> bool {
    *policy == SelectPolicy::Max
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

impl ScalingRules {
    fn window(&self, way: Way) -> SimTime {
        let default_s = match way {
            Way::Up => 0.0,
            Way::Down => 300.0,
        };
        SimTime::from_secs_f64(self.stabilization_window_s.unwrap_or(default_s))
    }

    fn period(&self) -> SimTime {
        SimTime::from_secs_f64(self.period_s.unwrap_or(15.0))
    }

    /// Replicas and percent; who gives one limit has no other, as a list of policies replaces the default.
    fn policies(&self, way: Way) -> (Option<u32>, Option<u32>) {
        match (self.pods, self.percent, way) {
            (None, None, Way::Up) => (Some(4), Some(100)),
            (None, None, Way::Down) => (None, Some(100)),
            (pods, percent, _) => (pods, percent),
        }
    }

    /// How many replicas there may be after a change, of so many at the begin of the period, and of so many
    /// now. `calculateScaleUpLimitWithScalingRules` and `calculateScaleDownLimitWithBehaviors`.
    fn limit(&self, way: Way, start: usize, current: usize) -> usize {
        let (pods, percent) = self.policies(way);
        let pods = pods.map(|pods| pods as usize);
        let share = percent.map(|percent| f64::from(percent) / 100.0);
        let limits = match way {
            Way::Up => [
                pods.map(|pods| start + pods),
                share.map(|share| (start as f64 * (1.0 + share)).ceil() as usize),
            ],
            Way::Down => [
                pods.map(|pods| start.saturating_sub(pods)),
                share.map(|share| (start as f64 * (1.0 - share.min(1.0))) as usize),
            ],
        };
        let limits = limits.into_iter().flatten();
        let limit = match (self.select_policy, way) {
            (SelectPolicy::Disabled, _) => None,
            (SelectPolicy::Max, Way::Up) | (SelectPolicy::Min, Way::Down) => limits.max(),
            (SelectPolicy::Min, Way::Up) | (SelectPolicy::Max, Way::Down) => limits.min(),
        };
        limit.unwrap_or(current)
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
            let fields = [
                ("stabilization_window_s", rules.stabilization_window_s, 0.0, MAX_S),
                ("period_s", rules.period_s, 1e-3, MAX_S),
                ("tolerance", rules.tolerance, 0.0, 1.0),
            ];
            for (field, value, least, most) in fields {
                within(&format!("{name}.{field}"), value.unwrap_or(most), least, most)?;
            }
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
            // `recordInitialRecommendation`.
            recommendations: vec![(SimTime::ZERO, num_replicas)],
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
            let rules = &self.config.scale_up;
            stable.min(rules.limit(Way::Up, self.at_period_start(now, rules), current)).max(current)
        } else {
            let rules = &self.config.scale_down;
            stable.max(rules.limit(Way::Down, self.at_period_start(now, rules), current)).min(current)
        };
        if self.desired > current {
            self.ups.push((now, self.desired - current));
        } else if self.desired < current {
            self.downs.push((now, current - self.desired));
        }
    }

    /// `calcPlainMetricReplicas`. A replica that starts up is a running pod whose server does not answer yet:
    /// its metric is missing. It counts as idle when there are too few, and as having just what is asked for
    /// when there are too many. `None` without anybody who could be asked.
    fn recommend(&self, reading: Reading) -> Option<usize> {
        let Reading { num_ready, num_starting, sum } = reading;
        if num_ready == 0 {
            return None;
        }
        let tolerance = |rules: &ScalingRules| rules.tolerance.unwrap_or(self.config.tolerance);
        let (up, down) = (tolerance(&self.config.scale_up), tolerance(&self.config.scale_down));
        let is_near = |ratio: f64| (1.0 - down..=1.0 + up).contains(&ratio);
        let ratio = sum / (num_ready as f64 * self.config.target);
        if num_starting == 0 {
            let replicas = (ratio * num_ready as f64).ceil() as usize;
            return Some(if is_near(ratio) { self.desired } else { replicas });
        }
        let of_starting = if ratio < 1.0 { num_starting as f64 * self.config.target } else { 0.0 };
        let num_counted = (num_ready + num_starting) as f64;
        let new_ratio = (sum + of_starting) / (num_counted * self.config.target);
        let replicas = (new_ratio * num_counted).ceil() as usize;
        // Neither what was assumed nor rounding turns the way.
        let turns = (ratio < 1.0 && new_ratio > 1.0)
            || (ratio > 1.0 && new_ratio < 1.0)
            || (new_ratio < 1.0 && replicas > self.desired)
            || (new_ratio > 1.0 && replicas < self.desired);
        Some(if is_near(new_ratio) || turns { self.desired } else { replicas })
    }

    /// `stabilizeRecommendationWithBehaviors`: up to the least, down to the most of what was
    /// recommended within the window.
    fn stabilize(&mut self, now: SimTime, recommended: usize) -> usize {
        let up_window = self.config.scale_up.window(Way::Up);
        let down_window = self.config.scale_down.window(Way::Down);
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
    fn at_period_start(&self, now: SimTime, rules: &ScalingRules) -> usize {
        let period = rules.period();
        let sum = |events: &[(SimTime, usize)]| -> usize {
            events.iter().filter(|&&(at, _)| at + period > now).map(|&(_, change)| change).sum()
        };
        (self.desired + sum(&self.downs)).saturating_sub(sum(&self.ups))
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
            scale_up: ScalingRules::default(),
            scale_down: ScalingRules::default(),
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
        config.scale_down.stabilization_window_s = Some(45.0);
        assert_eq!(desired(config.clone(), 8, &[80.0, 50.0, 30.0, 10.0, 10.0]), [8, 8, 8, 5, 3]);
        // Without one it goes at once, to the least there may be.
        config.scale_down.stabilization_window_s = Some(0.0);
        config.min_replicas = 2;
        assert_eq!(desired(config, 8, &[50.0, 0.0]), [5, 2]);
    }

    #[test]
    fn up_goes_to_the_least_that_was_asked_for_within_the_window() {
        let mut config = config();
        config.scale_up.stabilization_window_s = Some(31.0);
        // The look at 15 s asked for what there was, until it is out of the window.
        assert_eq!(desired(config, 2, &[20.0, 60.0, 60.0, 50.0]), [2, 2, 2, 5]);
    }

    #[test]
    fn the_limits_of_a_period_count_what_has_changed_in_it() {
        let mut config = config();
        let rules = |pods, period_s| ScalingRules {
            pods: Some(pods),
            period_s: Some(period_s),
            stabilization_window_s: Some(0.0),
            ..ScalingRules::default()
        };
        (config.scale_up, config.scale_down) = (rules(2, 60.0), rules(1, 30.0));
        // Two at once, then none until those are a minute old. Down to one less than there were half
        // a minute ago: 4, then 6, then 3.
        assert_eq!(
            desired(config, 2, &[90.0, 90.0, 90.0, 90.0, 90.0, 0.0, 0.0, 0.0]),
            [4, 4, 4, 4, 6, 3, 3, 2]
        );
    }

    #[test]
    fn at_first_what_there_is_counts_as_asked_for() {
        // The default window of 300 s holds the number at the start until it is over.
        let looks = desired(config(), 6, &[10.0; 21]);
        assert_eq!((looks[18], looks[19], looks[20]), (6, 1, 1));
    }

    #[test]
    fn a_limit_that_is_given_is_the_only_one() {
        let one = |pods, percent, select_policy| {
            let mut config = config();
            config.max_replicas = 100;
            let rules = ScalingRules {
                pods,
                percent,
                select_policy,
                stabilization_window_s: Some(0.0),
                ..ScalingRules::default()
            };
            (config.scale_up, config.scale_down) = (rules, rules);
            let up = desired(config.clone(), 10, &[1000.0])[0];
            (up, desired(config, 10, &[10.0])[0])
        };
        let max = SelectPolicy::Max;
        assert_eq!(one(None, None, max), (20, 1));
        // A tenth: 11 of 10, and 9; 25 percent of 10 are rounded away from it: 13, and 7.
        assert_eq!(one(None, Some(10), max), (11, 9));
        assert_eq!(one(None, Some(25), max), (13, 7));
        assert_eq!(one(Some(3), None, max), (13, 7));
        assert_eq!(one(Some(3), Some(50), max), (15, 5));
        assert_eq!(one(Some(3), Some(50), SelectPolicy::Min), (13, 7));
        assert_eq!(one(Some(3), Some(50), SelectPolicy::Disabled), (10, 10));
    }

    #[test]
    fn each_way_can_have_its_tolerance() {
        let mut config = config();
        config.scale_down.stabilization_window_s = Some(0.0);
        (config.scale_up.tolerance, config.scale_down.tolerance) = (Some(0.0), Some(0.3));
        assert_eq!(desired(config, 10, &[101.0, 78.0, 76.0]), [11, 11, 8]);
    }

    #[test]
    fn the_metric_of_replicas_that_start_up_is_missing() {
        let at = SimTime::from_secs_f64(15.0);
        let mut config = config();
        config.scale_down.stabilization_window_s = Some(0.0);
        let decided = |num_ready, num_starting, sum| {
            let mut autoscaler = Autoscaler::new(config.clone(), num_ready + num_starting);
            autoscaler.decide(at, Reading { num_ready, num_starting, sum });
            autoscaler.desired()
        };
        // 40 over two ready are 20 each, over all four what is asked for; 60 take six.
        assert_eq!((decided(2, 2, 40.0), decided(2, 2, 60.0)), (4, 6));
        // Four each: but two may yet have ten each, and 28 take three.
        assert_eq!(decided(2, 2, 8.0), 3);
        // One of ten has 8, the rest may have 10 each: 98 are near enough.
        assert_eq!(decided(1, 9, 8.0), 10);
        // Nobody can be asked.
        assert_eq!(decided(0, 6, 0.0), 6);
    }
}
