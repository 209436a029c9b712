//! From single launches to one number with its spread.

use super::device::{Device, DeviceError};

/// How long and how often a shape is timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimingRules {
    pub groups: u32,
    /// Launches of a group go on for at least this long.
    pub group_us: f64,
    pub min_launches: u32,
    pub max_launches: u32,
    /// Above this spread the groups are timed again.
    pub max_spread: f64,
    pub max_repeats: u32,
    /// A launch that takes longer is left out, for the sake of the rest.
    pub max_launch_us: f64,
}

/// Several launches before the first that counts: code and tables are loaded then.
const WARM_UP_LAUNCHES: u32 = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Of the means of the groups, per launch.
    pub median_us: f64,
    /// Largest less smallest mean of a group, over the median.
    pub spread: f64,
    pub launches_per_group: u32,
    /// How often all groups were timed again because of the spread.
    pub repeats: u32,
}

#[derive(Debug)]
pub(super) enum Timed {
    Done(Timing),
    /// One launch takes so long.
    TooSlow(f64),
}

/// Times the prepared operation, launches rotating over the sets. `spent_us` counts the device's time.
pub(super) fn time(
    device: &mut dyn Device,
    rules: &TimingRules,
    spent_us: &mut f64,
) -> Result<Timed, DeviceError> {
    let mut launch = |launches: u32| -> Result<f64, DeviceError> {
        let us = device.time_us(launches)?;
        if !us.is_finite() || us < 0.0 {
            let message = format!("{launches} launches took {us} us");
            return Err(DeviceError::Call { call: "the device's clock".to_owned(), message });
        }
        *spent_us += us;
        Ok(us / f64::from(launches))
    };
    // One alone first: it may be slow.
    let first = launch(1)?;
    if first > rules.max_launch_us {
        return Ok(Timed::TooSlow(first));
    }
    let estimate = launch(WARM_UP_LAUNCHES)?.max(1e-3);
    let launches = (rules.group_us / estimate).ceil() as u32;
    let launches_per_group = launches.clamp(rules.min_launches, rules.max_launches);
    let mut best: Option<Timing> = None;
    for repeats in 0..=rules.max_repeats {
        let groups = (0..rules.groups).map(|_| launch(launches_per_group));
        let timing = summarise(groups.collect::<Result<_, _>>()?, launches_per_group, repeats);
        let enough = timing.spread <= rules.max_spread;
        // The calmest of all tries, with the number of tries.
        best = Some(match best {
            Some(before) if before.spread <= timing.spread => Timing { repeats, ..before },
            _ => timing,
        });
        if enough {
            break;
        }
    }
    best.map(Timed::Done).ok_or_else(|| DeviceError::Call {
        call: "timing".to_owned(),
        message: "no group was timed".to_owned(),
    })
}

fn summarise(mut groups: Vec<f64>, launches_per_group: u32, repeats: u32) -> Timing {
    groups.sort_by(f64::total_cmp);
    let (low, high) = (groups[0], groups[groups.len() - 1]);
    let middle = groups.len() / 2;
    let median_us =
        if groups.len() % 2 == 1 { groups[middle] } else { (groups[middle - 1] + groups[middle]) / 2.0 };
    let spread = if median_us > 0.0 { (high - low) / median_us } else { 0.0 };
    Timing { median_us, spread, launches_per_group, repeats }
}
