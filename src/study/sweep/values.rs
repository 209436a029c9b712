//! The values that a field takes: a list, or a range.

use rand::{Rng, RngExt};
use serde::Deserialize;

use crate::scenario::{FieldError, Node, NodeDeserializer, Place, Value};

/// A sweep with more points is a slip of the keyboard.
pub(super) const MAX_POINTS: usize = 1_000_000;

/// A range as it is typed. Ends are included.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Range {
    /// Equal steps.
    Linear(LinearRange),
    /// Equal ratios.
    Logarithmic(LogarithmicRange),
    /// All powers of two between the ends.
    PowersOfTwo(Ends),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinearRange {
    from: f64,
    to: f64,
    step: Option<f64>,
    count: Option<usize>,
    round_to: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogarithmicRange {
    from: f64,
    to: f64,
    count: Option<usize>,
    /// Each value becomes the nearest multiple.
    round_to: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    from: f64,
    to: f64,
}

/// What a field may be.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Listed(Vec<Node>),
    /// Any number between the ends; only for points at random.
    Between {
        from: f64,
        to: f64,
        is_logarithmic: bool,
        round_to: Option<f64>,
        place: Place,
    },
}

impl Values {
    /// Reads what stands at a `path` of the sweep.
    ///
    /// # Errors
    /// No list and no range, or one without values.
    pub fn parse(node: &Node, path: &str) -> Result<Self, FieldError> {
        let wrong = |problem: String, hint: &str| FieldError {
            place: Some(node.place.clone()),
            field: path.to_owned(),
            ..FieldError::new(problem, hint)
        };
        let ranges = "or a range: {linear: {from, to, step or count}}, {logarithmic: {from, to, count}}, \
                      {powers_of_two: {from, to}}";
        let range = match &node.value {
            Value::List(items) if items.is_empty() => {
                return Err(wrong(
                    "the list is empty".into(),
                    "give at least one value, or leave the field out",
                ));
            }
            Value::List(items) => return Ok(Self::Listed(items.clone())),
            Value::Map(_) => Range::deserialize(NodeDeserializer::at(node, path))?,
            _ => {
                let hint = format!("give a list of values: [a, b], {ranges}");
                return Err(wrong("found one value".into(), &hint));
            }
        };
        let numbers = range.numbers().map_err(|(problem, hint)| wrong(problem, &hint))?;
        Ok(match (numbers, range) {
            (Some(numbers), _) => {
                let node = |&number: &f64| Node { value: number_value(number), place: node.place.clone() };
                Self::Listed(numbers.iter().map(node).collect())
            }
            (None, Range::Linear(LinearRange { from, to, round_to, .. })) => {
                Self::Between { from, to, is_logarithmic: false, round_to, place: node.place.clone() }
            }
            (None, Range::Logarithmic(LogarithmicRange { from, to, round_to, .. })) => {
                Self::Between { from, to, is_logarithmic: true, round_to, place: node.place.clone() }
            }
            (None, Range::PowersOfTwo(_)) => Self::Listed(Vec::new()),
        })
    }

    /// A value at random, each as likely as any other.
    pub fn draw(&self, rng: &mut impl Rng) -> Node {
        match self {
            Self::Listed(items) => items[rng.random_range(0..items.len())].clone(),
            &Self::Between { from, to, is_logarithmic, round_to, ref place } => {
                let number = if is_logarithmic {
                    rng.random_range(from.ln()..=to.ln()).exp()
                } else {
                    rng.random_range(from..=to)
                };
                let number = round(tidy(number).clamp(from, to), round_to);
                Node { value: number_value(number), place: place.clone() }
            }
        }
    }
}

type Problem = (String, String);

impl Range {
    /// `None` without a count or step.
    fn numbers(&self) -> Result<Option<Vec<f64>>, Problem> {
        let (from, to, count, round_to) = match *self {
            Self::Linear(range) => (range.from, range.to, range.count, range.round_to),
            Self::Logarithmic(range) => (range.from, range.to, range.count, range.round_to),
            Self::PowersOfTwo(ends) => (ends.from, ends.to, None, None),
        };
        let wrong = |problem: String, hint: &str| Err((problem, hint.to_owned()));
        if !((to - from).is_finite() && from <= to) {
            return wrong(
                format!("`from` is {from} and `to` is {to}"),
                "give finite numbers, the smaller as `from`",
            );
        }
        if !matches!(self, Self::Linear(_)) && from <= 0.0 {
            return wrong(format!("`from` is {from}"), "give a number above 0, or take `linear`");
        }
        if round_to.is_some_and(|multiple| !(multiple.is_finite() && multiple > 0.0)) {
            return wrong(
                "`round_to` is not above 0".into(),
                "give the number to round to multiples of, such as 1",
            );
        }
        if count.is_some_and(|count| !(2..=MAX_POINTS).contains(&count)) {
            return wrong(
                format!("`count` is {}", count.unwrap_or(0)),
                "give a whole number from 2 to 1000000",
            );
        }
        let mut numbers: Vec<f64> = match (*self, count) {
            (Self::Linear(LinearRange { step: Some(_), .. }), Some(_)) => {
                return wrong("found both `step` and `count`".into(), "keep one of them");
            }
            (Self::Linear(LinearRange { step: Some(step), .. }), None) => {
                // Half a billionth of a step more, for steps such as 0.1 that are no exact numbers.
                let steps = (to - from) / step + 5e-10;
                if !(step > 0.0 && steps < MAX_POINTS as f64) {
                    return wrong(
                        format!("`step` is {step}"),
                        "give a number above 0 that needs at most 1000000 steps",
                    );
                }
                (0..=steps as usize).map(|index| (from + index as f64 * step).min(to)).collect()
            }
            (Self::Linear(_), Some(count)) => {
                let step = (to - from) / (count - 1) as f64;
                (0..count).map(|index| from + index as f64 * step).collect()
            }
            (Self::Logarithmic(_), Some(count)) => {
                let step = (to.ln() - from.ln()) / (count - 1) as f64;
                (0..count).map(|index| (from.ln() + index as f64 * step).exp()).collect()
            }
            (Self::PowersOfTwo(_), _) => {
                let powers = (-1_074..=1_023).map(|exponent| 2_f64.powi(exponent));
                powers.filter(|power| (from..=to).contains(power)).collect()
            }
            (Self::Linear(_) | Self::Logarithmic(_), None) => return Ok(None),
        };
        if numbers.is_empty() {
            return wrong(format!("there is no power of two from {from} to {to}"), "give a wider range");
        }
        if !matches!(self, Self::PowersOfTwo(_)) {
            numbers.iter_mut().for_each(|number| *number = tidy(*number).clamp(from, to));
            if let (Some(_), [first, .., last]) = (count, numbers.as_mut_slice()) {
                (*first, *last) = (from, to);
            }
        }
        numbers.iter_mut().for_each(|number| *number = round(*number, round_to));
        numbers.dedup();
        Ok(Some(numbers))
    }
}

/// Twelve digits: without the noise of binary fractions, and the same on every machine.
fn tidy(number: f64) -> f64 {
    format!("{number:.11e}").parse().unwrap_or(number)
}

fn round(number: f64, multiple: Option<f64>) -> f64 {
    multiple.map_or(number, |multiple| tidy((number / multiple).round() * multiple))
}

/// Whole numbers as such, for fields that take no others.
fn number_value(number: f64) -> Value {
    const EXACT: f64 = (1_u64 << 53) as f64;
    match number {
        whole if whole.fract() == 0.0 && (0.0..=EXACT).contains(&whole) => Value::Unsigned(whole as u64),
        whole if whole.fract() == 0.0 && (-EXACT..0.0).contains(&whole) => Value::Signed(whole as i64),
        other => Value::Float(other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::rng::stream;

    fn parse(text: &str) -> Result<Values, FieldError> {
        Values::parse(&Node::parse(text).unwrap(), "grid.x")
    }

    fn numbers(text: &str) -> Vec<f64> {
        let Values::Listed(nodes) = parse(text).unwrap() else { panic!("{text} has no values") };
        nodes.iter().map(|node| node.to_json().as_f64().unwrap()).collect()
    }

    #[test]
    fn ranges_have_the_values_that_one_expects() {
        for (text, expected) in [
            ("{linear: {from: 0.1, to: 0.5, step: 0.1}}", vec![0.1, 0.2, 0.3, 0.4, 0.5]),
            ("{linear: {from: 0, to: 10, step: 4}}", vec![0.0, 4.0, 8.0]),
            ("{linear: {from: 1, to: 2, count: 5}}", vec![1.0, 1.25, 1.5, 1.75, 2.0]),
            ("{linear: {from: -1, to: 1, step: 1}}", vec![-1.0, 0.0, 1.0]),
            ("{logarithmic: {from: 1, to: 1000, count: 4}}", vec![1.0, 10.0, 100.0, 1000.0]),
            ("{logarithmic: {from: 100, to: 1000, count: 3, round_to: 10}}", vec![100.0, 320.0, 1000.0]),
            // Values that become equal are one.
            ("{linear: {from: 0, to: 4, count: 9, round_to: 2}}", vec![0.0, 2.0, 4.0]),
            ("{powers_of_two: {from: 3, to: 70}}", vec![4.0, 8.0, 16.0, 32.0, 64.0]),
            ("{powers_of_two: {from: 0.25, to: 1}}", vec![0.25, 0.5, 1.0]),
        ] {
            assert_eq!(numbers(text), expected, "{text}");
        }
    }

    #[test]
    fn whole_numbers_stay_whole() {
        let Values::Listed(nodes) = parse("{linear: {from: -1, to: 1, count: 5}}").unwrap() else { panic!() };
        let values: Vec<Value> = nodes.into_iter().map(|node| node.value).collect();
        let expected = [
            Value::Signed(-1),
            Value::Float(-0.5),
            Value::Unsigned(0),
            Value::Float(0.5),
            Value::Unsigned(1),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn a_range_without_values_says_what_to_type() {
        for (text, problem) in [
            ("16", "found one value"),
            ("[]", "the list is empty"),
            ("{linear: {from: 5, to: 1, count: 2}}", "`from` is 5 and `to` is 1"),
            ("{linear: {from: 0, to: 1, step: 0}}", "`step` is 0"),
            ("{linear: {from: 0, to: 1, step: 1, count: 2}}", "found both `step` and `count`"),
            ("{linear: {from: 0, to: 1, count: 1}}", "`count` is 1"),
            ("{linear: {from: 0, to: 1e9, step: 0.25}}", "`step` is 0.25"),
            ("{linear: {from: 0, to: 1, step: -0.5}}", "`step` is -0.5"),
            ("{logarithmic: {from: 0, to: 1, count: 2}}", "`from` is 0"),
            ("{powers_of_two: {from: 5, to: 7}}", "there is no power of two from 5 to 7"),
            ("{linar: {from: 0, to: 1}}", "there is no `linar`"),
        ] {
            assert_eq!(parse(text).unwrap_err().problem, problem, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_range_rises_from_one_end_to_the_other(
            from in -1e9..1e9_f64, length in 1e-3..1e9_f64, count in 2..200_usize
        ) {
            let to = from + length;
            let linear = numbers(&format!("{{linear: {{from: {from:?}, to: {to:?}, count: {count}}}}}"));
            prop_assert_eq!(linear.len(), count);
            prop_assert_eq!((linear[0], linear[count - 1]), (from, to));
            let step = length / (count - 1) as f64;
            let is_even = |pair: &[f64]| (pair[1] - pair[0] - step).abs() <= 1e-10 * from.abs().max(to.abs());
            prop_assert!(linear.windows(2).all(is_even));
        }

        #[test]
        fn a_logarithmic_range_has_equal_ratios(from in 1e-6..1e6_f64, ratio in 1.001..1e6_f64, count in 2..100_usize) {
            let to = from * ratio;
            let values = numbers(&format!("{{logarithmic: {{from: {from:?}, to: {to:?}, count: {count}}}}}"));
            prop_assert_eq!(values.len(), count);
            prop_assert_eq!((values[0], values[count - 1]), (from, to));
            let each = ratio.powf(1.0 / (count - 1) as f64);
            prop_assert!(values.windows(2).all(|pair| (pair[1] / pair[0] / each - 1.0).abs() < 1e-9));
        }

        #[test]
        fn powers_of_two_are_all_there_are(from in 1e-3..1e6_f64, ratio in 2.0..1e6_f64) {
            let to = from * ratio;
            let values = numbers(&format!("{{powers_of_two: {{from: {from:?}, to: {to:?}}}}}"));
            prop_assert!(values.iter().all(|value| value.log2().fract() == 0.0 && *value >= from && *value <= to));
            prop_assert!(values.windows(2).all(|pair| pair[1] == 2.0 * pair[0]));
            prop_assert!(values[0] / 2.0 < from && values[values.len() - 1] * 2.0 > to);
        }

        #[test]
        fn steps_end_at_or_before_the_end(from in -1e3..1e3_f64, step in 1e-3..10.0_f64, steps in 0..500_usize) {
            let to = from + step * steps as f64;
            let values = numbers(&format!("{{linear: {{from: {from:?}, to: {to:?}, step: {step:?}}}}}"));
            prop_assert_eq!(values.len(), steps + 1);
            prop_assert!(values.iter().all(|value| (from..=to).contains(value)));
        }

        #[test]
        fn draws_lie_in_the_range(from in 1e-3..1e6_f64, ratio in 1.0..1e6_f64, seed in any::<u64>()) {
            let to = from * ratio;
            for kind in ["linear", "logarithmic"] {
                let values = parse(&format!("{{{kind}: {{from: {from:?}, to: {to:?}}}}}")).unwrap();
                let number = values.draw(&mut stream(seed, "test", 0)).to_json().as_f64().unwrap();
                prop_assert!((from..=to).contains(&number), "{}", number);
            }
        }
    }
}
